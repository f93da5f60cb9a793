// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "plugin/tuner_desk.h"

#include <string>
#include <type_traits>
#include <unordered_map>

// The entries behind NCCL's tuner contexts.
namespace weft::plugin {

namespace {

constinit TunerDesk desk;
static_assert(std::is_trivially_destructible_v<TunerDesk>);

}  // namespace

// Made at the first open and destroyed with the last entry.
struct TunerDesk::Entries {
  std::unordered_map<const void*, std::unique_ptr<tuner::Tuner>> tuners;
  // The text that was logged last.
  std::string said;
};

TunerDesk& TunerDesk::get() {
  return desk;
}

// The text is logged when it differs from the last one: NCCL opens a tuner for each communicator.
void* TunerDesk::open(tuner::Tuner tuner, ncclDebugLogger_t logger) {
  auto entry = std::make_unique<tuner::Tuner>(std::move(tuner));
  void* const context = entry.get();
  const std::string text = entry->policy().text();
  const std::lock_guard lock(mutex_);
  if (!entries_) entries_ = std::make_unique<Entries>().release();
  entries_->tuners.emplace(context, std::move(entry));
  if (!logger || entries_->said == text) return context;
  entries_->said = text;
  logger(NCCL_LOG_INFO, NCCL_INIT | NCCL_TUNING, __FILE__, __LINE__, "TUNER/weft: %s", text.c_str());
  return context;
}

// A pointer that is not ours is ignored.
void TunerDesk::close(void* context) {
  const std::lock_guard lock(mutex_);
  if (!entries_) return;
  entries_->tuners.erase(context);
  if (!entries_->tuners.empty()) return;
  const std::unique_ptr<Entries> last(entries_);
  entries_ = nullptr;
}

const tuner::Tuner* TunerDesk::find(const void* context) const {
  if (!entries_) return nullptr;
  const auto entry = entries_->tuners.find(context);
  return entry == entries_->tuners.end() ? nullptr : entry->second.get();
}

}  // namespace weft::plugin
