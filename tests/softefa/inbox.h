// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "tests/softefa/wire.h"

namespace softefa {

inline constexpr uint32_t kSlots = 256;  // packets an inbox holds

// The shared memory of an inbox. `state` of a slot is the lap of the ring it serves in the upper half, and in
// the lower one kFree, kFull or the process that is filling it; so a producer that is killed while it fills a
// slot can be told from one that is slow.
struct alignas(128) InboxSlot {
  std::atomic<uint64_t> state;
  PacketHeader header;
  std::byte payload[kMtu];
};

struct InboxMemory {
  std::atomic<uint32_t> closed;    // the owner has left, or another has taken its number
  std::atomic<uint32_t> silent;    // the owner plays dead
  std::atomic<uint32_t> sleeping;  // the owner waits for `bell`
  std::atomic<uint32_t> bell;
  alignas(64) std::atomic<uint64_t> tail;
  alignas(64) std::atomic<uint64_t> head;
  InboxSlot slots[kSlots];
};

// Where packets for one opened NIC arrive: a ring in shared memory with many producers, of any process, and
// one consumer. Mapped once a process, however many use it. put and the rest for producers may be called by
// any thread; front, pop, sleep by the owner's, one at a time.
class Inbox {
 public:
  // Takes the first free number of `folder` (that of a NIC's GID). nullptr when all are taken or it cannot be
  // made.
  static std::shared_ptr<Inbox> own(const std::string& folder);
  // The inbox with that number; nullptr when there is none.
  static std::shared_ptr<Inbox> peer(const std::string& folder, uint32_t number);

  // For own and peer.
  Inbox(InboxMemory* memory, int file, std::string path, uint32_t number, bool owned);
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;
  ~Inbox();

  // -- producers
  // Copies a packet, its payload in pieces, in and wakes the owner; false when the ring is full.
  bool put(const PacketHeader& header, std::span<const Piece> payload);
  void abandonSlot();  // takes a slot and never fills it, as a producer that is killed there
  void ring();         // wakes the owner, and keeps it awake once when it is about to sleep
  void wake();         // the same when it sleeps; costs nothing otherwise
  bool closed() const { return memory_->closed.load() != 0; }
  bool ownerAnswers() const;  // false after it was killed or fell silent

  // -- the owner
  // The next packet, or nullptr. It stays in the ring until pop.
  const InboxSlot* front();
  void pop();
  uint32_t bell() const { return memory_->bell.load(); }
  // Waits for ring() or a packet, at most that long, and not at all when the bell rang since `bell`.
  void sleep(uint32_t bell, std::chrono::microseconds time);
  void setSilent(bool silent) { memory_->silent.store(silent ? 1 : 0); }  // producers see !ownerAnswers()
  void close();  // takes the file away; producers see closed()
  uint32_t number() const { return number_; }

 private:
  bool waiting() const;
  void skipIfDead(InboxSlot& slot, uint64_t position, uint64_t state);

  InboxMemory* memory_;
  int file_;
  std::string path_;
  uint32_t number_;
  bool owned_;
  uint32_t process_;                 // that has the mapping: asking the kernel with each packet is dear
  uint64_t stuckAt_ = ~uint64_t{0};  // position at which a producer seems to be stuck
  std::chrono::steady_clock::time_point stuckSince_{};
};

}  // namespace softefa
