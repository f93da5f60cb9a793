// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <relacy/relacy.hpp>

// What docs/internals/memory-order.md says of places where no lock stands, as models for Relacy: it runs the
// threads of a model in many orders, lets each load see any store that C++ allows, and reports a plain
// variable (rl::var) that two threads touch without an order between them. A model does what the functions
// that it names do, with their memory orders. With `Without` set to one of these orders, that one is left
// out, and Relacy has to find what goes wrong.
namespace weft::order {

inline constexpr rl::memory_order orderUnless(bool left, rl::memory_order order) {
  return left ? rl::mo_relaxed : order;
}

// providers/local: Outbox::put and look; LocalEndpoint::hasFrame, landNext and tell. Two slots, three frames.
enum class FrameOrder { none, number, taken, consumed, room };

template <FrameOrder Without>
struct Frames : rl::test_suite<Frames<Without>, 2> {
  static constexpr unsigned kSlots = 2, kCount = 3;

  rl::atomic<unsigned> number[kSlots];
  rl::var<unsigned> bytes[kSlots];
  rl::atomic<unsigned> consumed;

  void before() {
    for (unsigned i = 0; i < kSlots; i++) number[i].store(0, rl::mo_relaxed, $);
    consumed.store(0, rl::mo_relaxed, $);
  }

  void thread(unsigned index) { index == 0 ? write() : land(); }

  void write() {
    for (unsigned head = 0; head < kCount; head++) {
      while (head - consumed.load(orderUnless(Without == FrameOrder::room, rl::mo_acquire), $) >= kSlots)
        rl::yield(1, $);
      bytes[head % kSlots]($) = head + 1;
      number[head % kSlots].store(head + 1, orderUnless(Without == FrameOrder::number, rl::mo_release), $);
    }
  }

  void land() {
    for (unsigned taken = 0; taken < kCount; taken++) {
      while (number[taken % kSlots].load(orderUnless(Without == FrameOrder::taken, rl::mo_acquire), $) !=
             taken + 1)
        rl::yield(1, $);
      RL_ASSERT(bytes[taken % kSlots]($) == taken + 1);
      consumed.store(taken + 1, orderUnless(Without == FrameOrder::consumed, rl::mo_release), $);
    }
  }
};

// providers/local: LocalEndpoint::landAll against startFence and fenced. Behind the fence the memory is its
// owner's.
enum class FenceOrder { none, landing, look, fence, ask, end };

template <FenceOrder Without>
struct Fence : rl::test_suite<Fence<Without>, 2> {
  rl::atomic<int> landing, fence;
  rl::var<int> memory;

  void before() {
    landing.store(0, rl::mo_relaxed, $);
    fence.store(0, rl::mo_relaxed, $);
  }

  static constexpr rl::memory_order strong(FenceOrder which) {
    return orderUnless(Without == which, rl::mo_seq_cst);
  }

  void thread(unsigned index) { index == 0 ? land() : retire(); }

  void land() {
    landing.store(1, strong(FenceOrder::landing), $);
    if (fence.load(strong(FenceOrder::look), $) == 0) memory($) = 1;
    landing.store(0, orderUnless(Without == FenceOrder::end, rl::mo_release), $);
  }

  void retire() {
    fence.store(1, strong(FenceOrder::fence), $);
    while (landing.load(strong(FenceOrder::ask), $) != 0) rl::yield(1, $);
    memory($) = 2;
  }
};

// src/stats: CommStats::write and done; readLine and addRequests of tools/stats/reader.cc. The words are
// atomics without an order.
enum class RecordOrder { none, begin, end, done, first, second, third };

template <RecordOrder Without>
struct Records : rl::test_suite<Records<Without>, 2> {
  rl::atomic<unsigned> number, tag, bytes, done;

  void before() {
    for (rl::atomic<unsigned>* word : {&number, &tag, &bytes, &done}) word->store(1, rl::mo_relaxed, $);
  }

  void thread(unsigned index) { index == 0 ? write() : read(); }

  void write() {
    for (unsigned k = 2; k <= 3; k++) {
      number.store(0, rl::mo_relaxed, $);
      if (Without != RecordOrder::begin) rl::atomic_thread_fence(rl::mo_release, $);
      done.store(0, rl::mo_relaxed, $);
      tag.store(k, rl::mo_relaxed, $);
      bytes.store(100, rl::mo_relaxed, $);
      number.store(k, orderUnless(Without == RecordOrder::end, rl::mo_release), $);
      bytes.store(k, rl::mo_relaxed, $);
      done.store(1, orderUnless(Without == RecordOrder::done, rl::mo_release), $);
    }
  }

  void read() {
    const unsigned before = number.load(rl::mo_relaxed, $);
    if (Without != RecordOrder::first) rl::atomic_thread_fence(rl::mo_acquire, $);
    const unsigned over = done.load(rl::mo_relaxed, $);
    const unsigned itsTag = tag.load(rl::mo_relaxed, $);
    if (Without != RecordOrder::second) rl::atomic_thread_fence(rl::mo_acquire, $);
    const unsigned size = bytes.load(rl::mo_relaxed, $);
    if (Without != RecordOrder::third) rl::atomic_thread_fence(rl::mo_acquire, $);
    const unsigned after = number.load(rl::mo_relaxed, $);
    if (before == 0 || before != after) return;
    RL_ASSERT(itsTag == before);
    if (over == 1) RL_ASSERT(size == before);
  }
};

// src/core: Engine::tryEnter, leave, deliver, handleMail and drainMail. What is inside belongs to whoever has
// entered, and no mail is left.
enum class DoorOrder { none, enter, leave, mail };

template <DoorOrder Without>
struct Door : rl::test_suite<Door<Without>, 2> {
  static constexpr unsigned kInside = 1, kMailWaits = 2;

  rl::atomic<unsigned> door;
  rl::mutex mutex;
  rl::var<int> mail, handled, inside;

  void before() {
    door.store(0, rl::mo_relaxed, $);
    mail($) = 0;
    handled($) = 0;
    inside($) = 0;
  }
  void after() { RL_ASSERT(handled($) == 1); }

  void thread(unsigned index) { index == 0 ? call() : deliver(); }

  void call() {
    for (int i = 0; i < 2; i++) {
      if (!tryEnter()) continue;
      inside($) = inside($) + 1;
      leave();
    }
  }

  bool tryEnter() {
    const rl::memory_order acquire = orderUnless(Without == DoorOrder::enter, rl::mo_acquire);
    unsigned seen = 0;
    if (door.compare_exchange_strong(seen, kInside, acquire, $, rl::mo_relaxed, $)) return true;
    if (seen != kMailWaits ||
        !door.compare_exchange_strong(seen, kMailWaits | kInside, acquire, $, rl::mo_relaxed, $))
      return false;
    drainMail();
    return true;
  }

  unsigned stepOut() {
    return door.fetch_sub(kInside, orderUnless(Without == DoorOrder::leave, rl::mo_seq_cst), $) - kInside;
  }
  void leave() {
    if (stepOut() != 0) handleMail();
  }

  void deliver() {
    mutex.lock($);
    mail($) = 1;
    if (Without != DoorOrder::mail) door.fetch_or(kMailWaits, rl::mo_seq_cst, $);
    mutex.unlock($);
    handleMail();
  }

  void handleMail() {
    unsigned seen = door.load(rl::mo_seq_cst, $);
    while ((seen & (kInside | kMailWaits)) == kMailWaits) {
      if (!door.compare_exchange_weak(seen, seen | kInside, rl::mo_seq_cst, $)) continue;
      drainMail();
      seen = stepOut();
    }
  }

  void drainMail() {
    mutex.lock($);
    const int some = mail($);
    mail($) = 0;
    door.fetch_and(~kMailWaits, rl::mo_seq_cst, $);
    mutex.unlock($);
    inside($) = inside($) + 1;
    handled($) = handled($) + some;
  }
};

// providers/common: KeyTable::use, Use::~Use and remove. A slot's range is another one's after it was
// removed.
enum class PinOrder { none, use, unpin, wait };

template <PinOrder Without>
struct Pins : rl::test_suite<Pins<Without>, 2> {
  static constexpr unsigned kAlive = 1u << 16, kPins = kAlive - 1;

  rl::atomic<unsigned> state;
  rl::var<int> range;

  void before() { state.store(0, rl::mo_relaxed, $); }

  void thread(unsigned index) { index == 0 ? use() : addAndRemove(); }

  void use() {
    unsigned seen = state.load(rl::mo_relaxed, $);
    do {
      if ((seen & kAlive) == 0) return;
    } while (!state.compare_exchange_weak(
        seen, seen + 1, orderUnless(Without == PinOrder::use, rl::mo_acquire), $, rl::mo_relaxed, $));
    RL_ASSERT(range($) == 1);
    state.fetch_sub(1, orderUnless(Without == PinOrder::unpin, rl::mo_release), $);
  }

  void addAndRemove() {
    range($) = 1;
    state.store(kAlive, rl::mo_release, $);
    state.fetch_and(~kAlive, rl::mo_acq_rel, $);
    while ((state.load(orderUnless(Without == PinOrder::wait, rl::mo_acquire), $) & kPins) != 0)
      rl::yield(1, $);
    range($) = 2;
  }
};

}  // namespace weft::order
