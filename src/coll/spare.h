// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>

#include "src/coll/closing.h"
#include "src/coll/peers.h"

// The spare of a ring whose backend can be lost. That backend is a tree: its daemon may die, or the way to
// it. The ranks then agree over their own connections on the results that each of them has. Where no rank has
// a result that others lack, and all ranks still hold the vectors that they sent, they begin the unfinished
// operations again among themselves. Otherwise the group is broken, as it is without a spare. The ring owns
// it; the thread of the ring's data calls uses it.
namespace weft::coll {

class Spare {
 public:
  // `backend` connects all ranks; every rank of the group has a spare. `patience`: the time in which the
  // ranks have to agree. A rank that has nothing to do makes no calls, and so does not take part.
  Spare(std::unique_ptr<PeersBackend> backend, Milliseconds patience)
      : backend_(std::move(backend)), patience_(patience) {}
  Spare(const Spare&) = delete;
  Spare& operator=(const Spare&) = delete;

  PeersBackend& backend() { return *backend_; }
  Closing& closing() { return closing_; }  // the closing of the backend that was lost

  // A rank's results, by the sequence numbers of the operations.
  struct Claim {
    uint64_t after = 0;   // behind the youngest operation whose result the rank has
    uint64_t oldest = 0;  // the oldest operation whose result the rank lacks
    bool canBeginAgain = true;
  };
  // Asks the other ranks; called once. hear() brings the answer.
  Status ask(const Claim& mine);

  enum class Answer : uint8_t {
    waiting,
    yes,     // the operations begin again, from from() on
    no,      // why() says why not
    failed,  // the backend failed: its failure() is the reason
  };
  Answer hear();
  uint64_t from() const { return ~question_->all[1]; }
  const std::string& why() const { return why_; }
  // The turns of the backend that are not the ring's: the question has turn 0.
  static constexpr uint64_t kTurnsOfItsOwn = 1;

 private:
  // An all-reduce among the ranks: the greatest `after` of all of them, and the greatest complement of
  // `oldest`, which is the least `oldest`. The connections own it as well, as they may work on it longer than
  // the spare lives. It lies on a page of its own (src/base/pages.h).
  struct Question {
    std::array<uint64_t, 2> mine{}, all{};
  };

  // The answer, from the maxima.
  Answer decide();

  std::unique_ptr<PeersBackend> backend_;
  const Milliseconds patience_;
  TimePoint until_{};
  std::string why_;
  std::shared_ptr<Question> question_;  // once it was asked
  std::unique_ptr<GroupMemory> mineMemory_, allMemory_;
  Closing closing_;
};

}  // namespace weft::coll
