// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <cinttypes>
#include <numeric>

#include "src/base/log.h"
#include "src/rma/team.h"

// A team in words, for WEFT_STATE_DIR and `weft state`.
namespace weft::rma {

namespace {

constexpr size_t kMostLines = 32;  // of windows, and of ranks

std::string windowText(const Window& window) {
  const std::string where = window.host() ? "the host" : format("GPU %d", window.memory.gpu);
  return format("  window %u: %zu bytes of %s%s, in use by %u operations\n", window.number,
                window.memory.length, where.c_str(), window.staged ? " through host memory" : "",
                std::accumulate(window.uses.begin(), window.uses.end(), uint32_t{0}));
}

}  // namespace

std::string Link::stateText() const {
  const char* const names[] = {"", "has closed its end; ", "is lost; "};
  const size_t heads = sender_->headsWaiting(), incomplete = receiver_->incomplete();
  const uint64_t bytes = sender_->bytesWaiting();
  const std::string how = names[static_cast<size_t>(state_)];
  if (heads == 0 && incomplete == 0 && bytes == 0 && how.empty()) return "";
  return format("  rank %u: %s%zu heads and %" PRIu64
                " bytes wait to leave, %zu puts from it are not all here\n",
                rank_, how.c_str(), heads, bytes, incomplete);
}

std::string Team::stateText() const {
  std::lock_guard lock(mutex_);
  const auto waiting = std::count_if(requests_.begin(), requests_.end(), [](const Request& request) {
    return request.state == Request::State::moving;
  });
  std::string text =
      format("one-sided operations, rank %u of %u: %zu windows; %" PRIu64 " puts and %" PRIu64
             " gets were begun here, %zu of them are under way; %" PRIu64 " signals were added here\n",
             rank(), ranks(), windows_.size(), counters_.puts, counters_.gets, static_cast<size_t>(waiting),
             counters_.signals);
  if (failed()) text += "  ended: " + error_->message() + "\n";
  for (const auto& [number, exchange] : exchanges_)
    text += format("  registering window %u: rank %u has not been heard of\n", number, exchange.missing());
  size_t lines = 0;
  for (const auto& [number, window] : windows_)
    if (lines++ < kMostLines) text += windowText(*window);
  lines = 0;
  for (const auto& one : links_) {
    const std::string said = one ? one->stateText() : "";
    if (!said.empty() && lines++ < kMostLines) text += said;
  }
  return text;
}

}  // namespace weft::rma
