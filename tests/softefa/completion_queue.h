// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include <infiniband/verbs.h>

#include "tests/softefa/counters.h"
#include "tests/softefa/identity.h"
#include "tests/softefa/status.h"

namespace softefa {

class EventChannel;

// Outlives its queue pair for as long as completions of it are around. A work queue's place is free again
// when its completion was taken, as on the hardware.
struct QueuePairLife {
  std::atomic<bool> destroyed{false};
  std::atomic<uint32_t> sends{0};     // places of the send queue in use
  std::atomic<uint32_t> receives{0};  // and of the receive queue
};

inline constexpr uint16_t kNoAddressHandle = 0xffff;

struct Completion {
  uint64_t wrId = 0;
  Status status = Status::ok;
  ibv_wc_opcode opcode = IBV_WC_SEND;
  bool ofSend = true;
  uint32_t byteLength = 0;
  uint32_t imm = 0;
  unsigned flags = 0;
  uint32_t qpn = 0;
  uint32_t sourceQpn = 0;
  uint16_t sourceHandle = kNoAddressHandle;
  Gid sourceGid;
  bool unsolicited = false;
  std::shared_ptr<QueuePairLife> life;
};

// A completion queue without its verbs clothes. push by the device under its lock; take by one polling thread
// at a time; both together are fine.
class CompletionQueue {
 public:
  // `batch`: completions show so many at a time, or a millisecond after the first of them.
  CompletionQueue(uint32_t depth, EventChannel* channel, unsigned strict, unsigned batch, Counters& counters);

  void push(Completion completion);

  // 0 and the next completion; ENOENT when there is none; EINVAL when it was of a destroyed queue pair: then
  // it is consumed and there may be more.
  int take(Completion& completion);

  void arm();                                // the next push makes an event
  void setOwner(ibv_cq* cq) { cq_ = cq; }    // what events name
  uint32_t depth() const { return depth_; }  // a power of two
  EventChannel* channel() const { return channel_; }

 private:
  const uint32_t depth_;
  EventChannel* const channel_;
  const unsigned strict_;
  const unsigned batch_;
  Counters& counters_;
  ibv_cq* cq_ = nullptr;
  std::mutex mutex_;
  std::deque<Completion> entries_;
  bool armed_ = false;
  size_t shown_ = 0;                               // of entries_, from the front
  std::chrono::steady_clock::time_point first_{};  // when the oldest that is not shown came
};

}  // namespace softefa
