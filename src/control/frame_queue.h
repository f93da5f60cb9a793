// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <deque>

#include "src/base/bytes.h"

// One direction each way of a link's numbered frames: what was sent and not yet acknowledged, and what may be
// accepted. It outlives connections, so a resumed link continues without loss or duplicates. Pure; one owner.
namespace weft::control {

class FrameQueue {
 public:
  struct Frame {
    uint64_t sequence = 0;
    uint16_t type = 0;
    Bytes body;
  };
  enum class Arrival : uint8_t { fresh, duplicate, gap };

  void push(uint16_t type, Bytes body);
  const Frame* nextUnsent() const;  // nullptr: all were handed to the socket
  void markSent() { sent_++; }
  bool acknowledge(uint64_t sequence);  // false: the peer acknowledges what was never sent
  void rewind() { sent_ = 0; }          // the connection is lost: send again what is not acknowledged
  void clear();
  size_t unacknowledged() const { return frames_.size(); }

  Arrival arrive(uint64_t sequence);
  uint64_t received() const { return received_; }

 private:
  std::deque<Frame> frames_;
  size_t sent_ = 0;  // how many at the front of frames_ this connection has taken
  uint64_t lastSequence_ = 0;
  uint64_t received_ = 0;
};

}  // namespace weft::control
