// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/lane.h"

namespace weft::core {

bool Lane::flush(TimePoint now) {
  while (!queued_.empty()) {
    const std::span<Work> run = queued_.run();
    const size_t taken = endpoint_->post(run);
    if (taken > 0 || lastSign_ == TimePoint{}) lastSign_ = now;
    queued_.pop(taken);
    if (taken < run.size()) return true;
  }
  return false;
}

// The rate over windows in which the lane was never idle, the first from when it got work; an exponential
// mean over windows follows a rail that slows down within a few of them.
void Lane::measure(uint64_t bytes, TimePoint now) {
  constexpr uint64_t kWindowBytes = 1 << 20;
  constexpr float kWeight = 0.25f;
  windowBytes_ += bytes;
  if (windowBytes_ < kWindowBytes || now <= windowStart_) return;
  const float us = std::chrono::duration<float, std::micro>(now - windowStart_).count();
  const float rate = std::max(1.0f, static_cast<float>(windowBytes_) / us);
  bytesPerUs_ = bytesPerUs_ > 0 ? bytesPerUs_ + kWeight * (rate - bytesPerUs_) : rate;
  roundsSinceMeasured_ = 0;
  windowStart_ = now;
  windowBytes_ = 0;
}

TimePoint Lane::stalledSince(TimePoint now) {
  if (signSinceWatch_) lastSign_ = now;
  signSinceWatch_ = false;
  return waiting() ? lastSign_ : TimePoint{};
}

void Lane::replace(std::unique_ptr<Endpoint> endpoint, TimePoint now) {
  endpoint_ = std::move(endpoint);
  standing.incarnation++;
  standing.connected = StandingEnd::neither;
  queued_.clear();
  outstandingBytes_ = windowBytes_ = 0;
  outstandingWorks_ = 0;
  windowStart_ = TimePoint{};
  lastSign_ = now;
}

void Lane::startFencing() {
  queued_.clear();
  endpoint_->retire();
}

}  // namespace weft::core
