// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "weft/transport.h"

// The unfinished works of one fault Queue. A work has two halves: what the user still waits for (`owed`) and
// what the inner Queue still does with it. Faults pull them apart: reported but not landed, landed but not
// reported. The Queue's owner thread only; allocates only when more works are unfinished than ever before, or
// a fault needs a copy.
namespace weft::fault {

class FaultEndpoint;

// A copy of a work's bytes in registered memory of ours, for when the user has its buffer back.
struct Staged {
  std::vector<std::byte> bytes;
  std::unique_ptr<Memory> memory;
};

// Null when the inner Device cannot register it.
std::unique_ptr<Staged> stage(Device& device, const Work& work);

struct Entry {
  enum class Inner : uint8_t { held, posted, ended };

  Work work;  // as the user gave it; `local` moves to the copy where there is one
  FaultEndpoint* lane = nullptr;
  Inner inner = Inner::held;
  bool owed = true;
  bool fail = false;  // report an error whatever comes
  bool lost = false;  // its completion was dropped: reported when the lane retires
  std::unique_ptr<Staged> copy;
  uint32_t partner = 0;  // the other one of a duplicated pair, 0: none; reported when both ended

  // While held: posted once the first of these comes true.
  bool parked = false;      // never
  uint32_t polls = 0;       // own polls left
  uint32_t overtakers = 0;  // later works of the lane left; 0: does not count
  uint64_t peerPolls = 0;   // the peer's poll count to wait for; 0: does not count

  uint32_t generation = 0;
  bool used = false;
};

class Ledger {
 public:
  explicit Ledger(size_t expected);

  // Indices start at 1. References stay valid until the next add.
  uint32_t add(FaultEndpoint& lane, const Work& work);
  void remove(uint32_t index);
  Entry& at(uint32_t index) { return entries_[index]; }
  // The context that the inner Queue's completions carry, and back; 0 when the entry is gone.
  uint64_t contextOf(uint32_t index) const;
  uint32_t find(uint64_t context) const;

  size_t unfinished() const { return unfinished_; }
  uint64_t bytes() const { return bytes_; }

  // Calls f(index) for each work of `lane`; f may remove it.
  template <class F>
  void forEach(const FaultEndpoint& lane, F f) {
    for (uint32_t i = 1; i < entries_.size(); i++)
      if (entries_[i].used && entries_[i].lane == &lane) f(i);
  }

 private:
  std::vector<Entry> entries_;
  std::vector<uint32_t> free_;
  size_t unfinished_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace weft::fault
