// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>

#include "src/coll/closing.h"
#include "src/coll/peers.h"

// The spare of a ring whose backend can be lost, which is a tree: its daemon, or the way to it. The ranks
// agree over their own connections on what each of them has. Where no rank has a result that others lack, and
// all still hold what they sent, they begin the unfinished operations again among themselves, and go on so.
// Otherwise the group is broken, as it is without a spare. Owned by the ring; the thread of its data calls.
namespace weft::coll {

class Spare {
 public:
  // `backend` connects all ranks. Every rank of the group has one. `patience`: how long the ranks may take to
  // agree; a rank that has nothing to do makes no calls and so does not take part.
  Spare(std::unique_ptr<PeersBackend> backend, Milliseconds patience)
      : backend_(std::move(backend)), patience_(patience) {}
  ~Spare();
  Spare(const Spare&) = delete;
  Spare& operator=(const Spare&) = delete;

  PeersBackend& backend() { return *backend_; }
  Closing& closing() { return closing_; }  // of the backend that was lost

  // The results that a rank has, by the sequence numbers of the operations.
  struct Claim {
    uint64_t after = 0;   // behind the youngest whose result it has
    uint64_t oldest = 0;  // the oldest whose result it lacks
    bool canBeginAgain = true;
  };
  // Asks the others; once. The answer comes by hear().
  Status ask(const Claim& mine);

  enum class Answer : uint8_t {
    waiting,
    yes,     // the operations begin again, from `from()` on
    no,      // why() says why not
    failed,  // the backend did: its failure() says why
  };
  Answer hear();
  uint64_t from() const { return ~all_[1]; }
  const std::string& why() const { return why_; }
  // Operations of the backend that are not the ring's: the question was the first.
  static constexpr uint64_t kTurnsOfItsOwn = 1;

 private:
  Answer decide();

  std::unique_ptr<PeersBackend> backend_;
  const Milliseconds patience_;
  TimePoint until_{};
  std::string why_;
  // The question is an operation among the ranks: the greatest `after` of all of them, and the greatest
  // complement of `oldest`.
  std::array<uint64_t, 2> mine_{}, all_{};
  std::unique_ptr<GroupMemory> mineMemory_, allMemory_;
  Closing closing_;  // before the backend goes
};

}  // namespace weft::coll
