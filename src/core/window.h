// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>

#include "weft/transport.h"

// Direct messages: where the fabric's receiving end asks where a message lands (DeviceInfo::messages), a
// message of any size may leave before its receive is known. It lands in the posted receive at once; one that
// comes early lands in memory of the receiving engine, and is copied when its receive is posted. What may be
// early is bounded by a window of bytes that each receiving comm grants its sender, out of a pool that all of
// the process share. Where a window is used up a message waits for its CTS, as on any other fabric.
namespace weft::core {

// What a direct message carries in its label: which one it is, and what an eager header says beside that.
struct DirectHeader {
  uint32_t comm = 0;  // the receiver's number for the connection
  uint32_t tag = 0;
  uint32_t k = 0;
  uint32_t ctsRead = 0;  // sequence of the first CTS that the sender has not read yet
};

// A label's first 32 bits.
enum class LabelKind : uint32_t {
  message = 0,
  window = 1,  // receiver -> sender, without bytes: so much of the window was given back in all
};

inline MessageLabel labelOf(const DirectHeader& header) {
  return {static_cast<uint32_t>(LabelKind::message),
          {header.comm | uint64_t{header.tag} << 32, header.k | uint64_t{header.ctsRead} << 32}};
}
inline DirectHeader directHeaderOf(const MessageLabel& label) {
  return {static_cast<uint32_t>(label.words.base), static_cast<uint32_t>(label.words.base >> 32),
          static_cast<uint32_t>(label.words.key), static_cast<uint32_t>(label.words.key >> 32)};
}

struct WindowReturn {
  uint32_t comm = 0;      // the sender's number for the connection
  uint32_t returned = 0;  // bytes of the window in all, mod 2^32
};

inline MessageLabel labelOf(const WindowReturn& window) {
  return {static_cast<uint32_t>(LabelKind::window), {window.comm, window.returned}};
}
inline WindowReturn windowReturnOf(const MessageLabel& label) {
  return {static_cast<uint32_t>(label.words.base), static_cast<uint32_t>(label.words.key)};
}

// The memory that a message takes when it comes early: in steps of a quarter of its power of two. Both ends
// count by it.
constexpr uint64_t earlyBytes(uint64_t bytes) {
  constexpr uint64_t kLeast = 256, kLeastStep = 128;
  if (bytes <= kLeast) return kLeast;
  const uint64_t step = std::max(std::bit_floor(bytes - 1) / 4, kLeastStep);
  return (bytes + step - 1) / step * step;
}

// What a message takes of a window: all that it may cost its receiver, whose notes of it are the constant. So
// a window bounds memory, and how many messages can be early, however small they are.
constexpr uint64_t chargeOf(uint64_t bytes) {
  constexpr uint64_t kNotes = 128;
  return earlyBytes(bytes) + kNotes;
}

// The sender's side of a window. Used only by who has entered the engine. Counts are mod 2^32, which is more
// than any window.
class WindowOut {
 public:
  void open(uint32_t granted) { granted_ = granted; }
  bool holds(uint64_t bytes) const { return chargeOf(bytes) <= granted_ - (taken_ - returned_); }
  void take(uint64_t bytes) { taken_ += static_cast<uint32_t>(chargeOf(bytes)); }
  // The receiver's word. Words may overtake each other: an older one says less, and nothing new. False: more
  // than was ever taken, so nobody of ours said it.
  bool giveBack(uint32_t returned) {
    const uint32_t more = returned - returned_;
    if (more > taken_ - returned_) return static_cast<int32_t>(more) < 0;
    returned_ = returned;
    return true;
  }

 private:
  uint32_t granted_ = 0;
  uint32_t taken_ = 0;
  uint32_t returned_ = 0;
};

// The receiver's side of the same window, by the receiver's own knowledge.
class WindowIn {
 public:
  void open(uint32_t granted) { granted_ = granted; }
  uint32_t granted() const { return granted_; }
  // Whether such a message may come directly at all; whether it may now is the sender's to know.
  bool fits(uint64_t bytes) const { return chargeOf(bytes) <= granted_; }
  // A message's header is here. False: its sender was not granted so much.
  bool arrives(uint64_t bytes) {
    arrived_ += static_cast<uint32_t>(chargeOf(bytes));
    return chargeOf(bytes) <= granted_ && arrived_ - told_ <= granted_;
  }
  // It is in its receive, or will never be.
  void matched(uint64_t bytes) { matched_ += static_cast<uint32_t>(chargeOf(bytes)); }
  // Whether the sender should hear what was matched since it last did.
  bool due() const { return granted_ > 0 && matched_ - told_ >= granted_ / 4; }
  uint32_t tell() { return told_ = matched_; }

 private:
  uint32_t granted_ = 0;
  uint32_t arrived_ = 0;
  uint32_t matched_ = 0;
  uint32_t told_ = 0;
};

// The bytes that all windows of a process may hold together. Any thread.
class WindowPool {
 public:
  explicit WindowPool(uint64_t bytes)
      : left_(static_cast<int64_t>(bytes)), most_(static_cast<int64_t>(bytes)), room_(most_) {}

  // As much of `wanted` as there is, but at most a sixteenth of what is left: the windows of many connections
  // become smaller and smaller, and none goes without for long. 0: less is left than a window is worth.
  uint32_t take(uint32_t wanted) {
    constexpr int64_t kLeast = 64 << 10;
    int64_t left = left_.load(std::memory_order_relaxed);
    int64_t granted;
    do {
      if (left < kLeast || wanted < kLeast) return 0;
      granted = std::min<int64_t>(wanted, std::max(left / 16, kLeast));
    } while (!left_.compare_exchange_weak(left, left - granted, std::memory_order_relaxed));
    return static_cast<uint32_t>(granted);
  }
  void giveBack(uint32_t bytes) { left_.fetch_add(bytes, std::memory_order_relaxed); }
  int64_t taken() const { return most_ - left_.load(std::memory_order_relaxed); }
  // Bytes of memory for what comes early that the engines may map beside what they have (mem::Heap).
  std::atomic<int64_t>& room() { return room_; }

 private:
  std::atomic<int64_t> left_;
  const int64_t most_;
  std::atomic<int64_t> room_;
};

}  // namespace weft::core
