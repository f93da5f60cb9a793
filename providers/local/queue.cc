// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/local/queue.h"

#include <algorithm>

#include "providers/local/endpoint.h"
#include "src/base/advice.h"

// The round over all lanes, and the rare looks at peers.
namespace weft::local {

namespace {

// Reading the clock costs more than a poll that finds nothing.
constexpr uint32_t kPollsBetweenClocks = 64;
constexpr Milliseconds kBetweenLooks{5};

}  // namespace

LocalQueue::LocalQueue(LocalDevice& device, const QueueDepths& wanted)
    : device_(device),
      table_(device.table()),
      depths_{std::max(wanted.sends, 1u), std::max(wanted.notifications, 1u), wanted.trafficClass} {}

Result<std::unique_ptr<Endpoint>> LocalQueue::openEndpoint() {
  TRY(auto lane, LocalEndpoint::open(*this));
  lanes_.push_back(lane.get());
  return std::unique_ptr<Endpoint>(std::move(lane));
}

size_t LocalQueue::poll(std::span<Completion> out) {
  events_.beginPoll();
  if (out.empty()) return 0;
  size_t count = 0;
  const size_t first = turn_;
  for (size_t i = 0; i < lanes_.size(); i++) {
    const size_t index = first + i < lanes_.size() ? first + i : first + i - lanes_.size();
    count += lanes_[index]->poll(out.subspan(count));
    if (count < out.size()) continue;
    turn_ = index + 1 < lanes_.size() ? index + 1 : 0;  // so that no lane behind it is left out
    break;
  }
  if (!pending_.empty() || ++polls_ >= kPollsBetweenClocks) [[unlikely]]
    look();
  if (!events_.empty()) [[unlikely]]
    count += events_.take(out.subspan(count));
  return count;
}

void LocalQueue::look() {
  polls_ = 0;
  const TimePoint now = device_.clock().now();
  std::erase_if(pending_, [now](LocalEndpoint* lane) { return !lane->progress(now); });
  if (now - lookedAt_ < kBetweenLooks) return;
  lookedAt_ = now;
  for (LocalEndpoint* lane : lanes_) lane->checkPeer(), lane->talkOfShares();
}

void LocalQueue::report(const Completion& completion, std::string why) {
  events_.report(completion, std::move(why));
}

void LocalQueue::attend(LocalEndpoint* lane) {
  if (std::find(pending_.begin(), pending_.end(), lane) == pending_.end()) pending_.push_back(lane);
}

void LocalQueue::forget(LocalEndpoint* lane) {
  std::erase(lanes_, lane);
  std::erase(pending_, lane);
  events_.eraseIf([lane](const Completion& completion) { return completion.source == lane; });
  turn_ = 0;
}

std::string LocalQueue::explain(const Completion& completion) const {
  if (const std::string* why = events_.wordsOf(completion)) return *why;
  return completion.ok ? "no error" : errnoWords(completion.error);
}

}  // namespace weft::local
