// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "src/rma/wire.h"

// One registration's all-gather: every rank ends with the descriptors of all. In round k a rank sends the
// first 2^k descriptors from its own on, as far as they are missing there, to the rank 2^k before it. So a
// rank sends log2(ranks) times and 16 bytes a rank altogether, and a rank that has all knows that all have
// begun. It moves no bytes itself: the team carries them (team.h), whose lock guards it. A value.
namespace weft::rma {

class Exchange {
 public:
  // The descriptors to send, and the rank that gets them.
  struct Round {
    uint32_t to = 0;
    uint32_t first = 0;  // the rank of the first descriptor; they wrap around behind the last rank
    uint32_t count = 0;
  };

  Exchange(uint32_t ranks, uint32_t rank) : rank_(rank), all_(ranks), here_(ranks) {}

  void begin(const Descriptor& own) { put(rank_, own); }
  // False: a rank that is not of this team, or one that was here already.
  bool take(uint64_t rank, const Descriptor& descriptor);
  // The next round whose descriptors are all here; none: not now, or all were sent.
  std::optional<Round> nextRound();
  bool done() const { return have_ == all_.size() && reach_ >= all_.size(); }
  const Descriptor& of(uint32_t rank) const { return all_[rank]; }
  std::vector<Descriptor> takeAll() { return std::move(all_); }
  uint32_t missing() const;  // the first rank from this one on that has not been heard of

 private:
  void put(uint32_t rank, const Descriptor& descriptor);
  uint32_t wrapped(size_t at) const { return static_cast<uint32_t>(at % all_.size()); }

  uint32_t rank_;
  std::vector<Descriptor> all_;
  std::vector<bool> here_;
  size_t have_ = 0;   // descriptors without a gap from this rank's own on
  size_t reach_ = 1;  // the distance of the next round: 2^k
};

}  // namespace weft::rma
