// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/control/frame_queue.h"

// The numbers of frames, and their acknowledgement.
namespace weft::control {

void FrameQueue::push(uint16_t type, Bytes body) {
  frames_.push_back({++lastSequence_, type, std::move(body)});
}

const FrameQueue::Frame* FrameQueue::nextUnsent() const {
  return sent_ < frames_.size() ? &frames_[sent_] : nullptr;
}

bool FrameQueue::acknowledge(uint64_t sequence) {
  if (sequence > lastSequence_) return false;
  while (!frames_.empty() && frames_.front().sequence <= sequence) {
    frames_.pop_front();
    if (sent_ > 0) sent_--;
  }
  return true;
}

void FrameQueue::clear() {
  frames_.clear();
  sent_ = 0;
}

// After a lost connection frames may come twice, as their acknowledgement was lost with the connection. A gap
// cannot arise on a connection, so a peer that shows one does not keep the protocol.
FrameQueue::Arrival FrameQueue::arrive(uint64_t sequence) {
  if (sequence <= received_) return Arrival::duplicate;
  if (sequence != received_ + 1) return Arrival::gap;
  received_ = sequence;
  return Arrival::fresh;
}

}  // namespace weft::control
