// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "providers/loop/ring.h"
#include "providers/loop/transfer.h"

// Where peers put what is to arrive at one Queue. Shared by the Queue and everybody connected to it; any
// thread pushes, the Queue's owner pops. Never allocates after it was made.
namespace weft::loop {

struct Arrival {
  enum class Kind : uint8_t { landed, transfer, closed };
  Kind kind = Kind::landed;
  bool notify = false;             // counts against the Queue's notifications
  bool isMessage = false;          // the Queue's Placer says where it lands
  uint64_t data = 0;               // imm below, length above: one word, as the smallest fabrics have
  uint64_t target = 0;             // the Port it was sent to
  std::shared_ptr<Outbox> outbox;  // transfer: keeps the next alive
  Transfer* transfer = nullptr;
  uint64_t generation = 0;  // of the transfer, to see that it was taken back
  TimePoint due{};          // it does not land before
  bool awaited = false;     // its sender wants to know
};

class Inbox {
 public:
  explicit Inbox(uint32_t notifications) : ring_(size_t{notifications} + 4096), limit_(notifications) {}

  // Room for a notification is taken when it is posted and given back when it is polled.
  bool reserveNotification() {
    if (pending_.fetch_add(1, std::memory_order_relaxed) < limit_) return true;
    releaseNotification();
    return false;
  }
  void releaseNotification() { pending_.fetch_sub(1, std::memory_order_relaxed); }

  bool push(Arrival arrival) { return ring_.push(std::move(arrival)); }
  bool pop(Arrival* out) { return ring_.pop(out); }
  size_t capacity() const { return ring_.capacity(); }

 private:
  MpscRing<Arrival> ring_;
  const uint32_t limit_;
  std::atomic<uint32_t> pending_{0};
};

}  // namespace weft::loop
