// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <vector>

#include "tools/perf/operation.h"
#include "tools/sim/channel.h"

// A rank's part of an operation, by the schedules of `weft perf`, over connections whose bytes nobody looks
// at: which message is sent when, and what has to have come before. Used by one thread.
namespace weft::sim {

class Movement {
 public:
  virtual ~Movement() = default;
  virtual void start(uint64_t bytes) = 0;  // of the whole operation
  virtual Status progress(Effort* effort) = 0;
  virtual bool done() const = 0;
};

// A rank's connections of one operation.
struct Wires {
  struct To {
    int peer;
    std::unique_ptr<core::SendComm> comm;
  };
  struct From {
    int peer;
    std::unique_ptr<core::RecvComm> comm;
  };
  int rank = 0;
  int size = 1;
  std::byte* memory = nullptr;  // of kSlotBytes
  std::vector<To> to;
  std::vector<From> from;
};

constexpr size_t kElementBytes = 4;
constexpr size_t kBufferBytes = size_t{4} << 20;     // of one direction of one connection
constexpr size_t kP2pBytes = size_t{128} << 10;      // the largest message where everybody sends to everybody
constexpr size_t kSlotBytes = kBufferBytes / 8 * 2;  // the largest of all others

// Null operation: each connection carries a message.
Result<std::unique_ptr<Movement>> makeMovement(const perf::Operation* operation, int instance, Wires wires);

}  // namespace weft::sim
