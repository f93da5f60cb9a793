// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <deque>

#include "src/base/bytes.h"

// The numbered frames of a link, in both directions: the frames that were sent and are not acknowledged yet,
// and the next number to accept. It outlives connections, so a resumed link continues without loss or
// duplicates. No system calls; a Link owns it. Control thread.
namespace weft::control {

class FrameQueue {
 public:
  // A frame that is kept for sending it again.
  struct Frame {
    uint64_t sequence = 0;
    uint16_t type = 0;
    Bytes body;
  };
  enum class Arrival : uint8_t { fresh, duplicate, gap };

  // Gives the frame the next number.
  void push(uint16_t type, Bytes body);
  const Frame* nextUnsent() const;  // null: all frames were handed to the socket
  void markSent() { sent_++; }
  bool acknowledge(uint64_t sequence);  // false: the peer acknowledges a number that was never sent
  void rewind() { sent_ = 0; }  // the connection is lost: frames that are not acknowledged go out again
  void clear();
  size_t unacknowledged() const { return frames_.size(); }

  // Counts a frame that came. Only a fresh one is to be used.
  Arrival arrive(uint64_t sequence);
  uint64_t received() const { return received_; }

 private:
  std::deque<Frame> frames_;
  size_t sent_ = 0;            // frames at the front of frames_ that this connection has taken
  uint64_t lastSequence_ = 0;  // given to the youngest frame; the first is 1
  uint64_t received_ = 0;      // the highest number that came
};

}  // namespace weft::control
