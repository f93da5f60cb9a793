// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <deque>
#include <vector>

#include "src/coll/mesh.h"
#include "src/coll/plan.h"

// An operation that the ranks share among themselves: its sends, its receives and the reduction between them.
// The steps: every rank sends each other rank that rank's part of its vector (contributions), folds the
// pieces that it received with its own (foldings), and sends its part of the result to the others (results).
// All steps of several pieces go on at a time.
// The peers (peers.h) own the exchanges and call progress() until it says done. Used by the thread of the
// data calls.
namespace weft::coll {

// A registration on every comm of the group. The application's memory is registered once a comm and
// direction.
class PeersMemory final : public GroupMemory {
 public:
  std::vector<core::MemoryHandle*> sending;  // by rank; null for this one
  std::vector<core::MemoryHandle*> receiving;
};

// Room for a piece of every rank's vector. The pieces that the others send lie there until all of them have
// come.
struct Block {
  Staging memory;
  std::vector<core::MemoryHandle*> handles;  // by rank, for receiving; null: this rank
};

// The blocks of a group, made at first use, `most` at most. A block holds ranks * pieceBytes bytes. Destroyed
// after the exchanges have given all blocks back.
class BlockPool {
 public:
  BlockPool(Mesh& mesh, size_t pieceBytes, size_t most) : mesh_(mesh), pieceBytes_(pieceBytes), most_(most) {}
  // Null: none is free now. The last few are for the oldest operation alone, since all others may wait for
  // it. An error where no new block can be made: the operation would otherwise wait for ever.
  Result<Block*> take(bool oldest);
  void give(Block* block) { free_.push_back(block); }
  size_t pieceBytes() const { return pieceBytes_; }
  // The room for that rank's piece. The room of this rank's own piece stays unused: fold() reads the
  // application's memory.
  std::byte* piece(const Block& block, int rank) const {
    return block.memory.data() + static_cast<size_t>(rank) * pieceBytes_;
  }

 private:
  Result<std::unique_ptr<Block>> make();

  Mesh& mesh_;
  size_t pieceBytes_;
  size_t most_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<Block*> free_;
};

class Exchange {
 public:
  // free -> running (begin) -> done (nothing is left to move) -> free (the ring has been told). The peers
  // make the last two steps.
  enum class State : uint8_t { free, running, done };
  enum class Step : uint8_t { going, done, failed };

  // `slot`: the place among the group's exchanges. It makes the tags: 1 + 2 * slot for contributions, 2 + 2 *
  // slot for results, so that exchanges never match each other's messages.
  Exchange(Mesh& mesh, BlockPool& blocks, size_t oneStepBytes, int slot)
      : mesh_(mesh), blocks_(blocks), oneStepBytes_(oneStepBytes), slot_(slot) {}

  State state() const { return state_; }
  void enter(State next) { state_ = next; }
  void begin(const Operation& operation);
  // Moves everything that can move now. `oldest`: no exchange before this one still moves, so it may take the
  // last blocks. `mayPost`: all exchanges before it have posted all they can.
  Step progress(bool oldest, bool mayPost);
  bool refused() const { return refused_; }  // there was more to post, and no room for it
  int culprit() const { return culprit_; }   // after a failure: the rank to blame
  // After a failure: the reason, in words.
  const std::string& why() const { return why_; }
  uint64_t bytesSent() const { return bytesSent_; }

 private:
  // A send or a receive that was posted: a contribution or result that leaves, or a result that comes.
  struct Flight {
    core::Request* request;
    size_t bytes;  // of a receive: the size that must come
    int rank;
    bool sends;
  };
  // A piece of this rank's part that is being reduced: one receive from every other rank.
  struct Folding {
    Block* block;
    Part piece;                            // within this rank's part
    std::vector<core::Request*> receives;  // by rank; null: not posted, or this rank
    int unposted;                          // receives that are not posted yet
    int next;                              // the first rank whose piece is not known to be here
  };

  int self() const { return mesh_.rank(); }
  const Part& own() const { return plan_.parts[static_cast<size_t>(self())]; }
  // The steps of progress(). False: the exchange failed, and fail() has set culprit and reason.
  bool postContributions();
  bool postReceives(Folding& folding);
  bool openFolding(bool oldest);
  bool postFoldings();
  bool advanceFoldings();
  bool testReceives(Folding& folding);
  bool fold(const Folding& folding);
  bool foldsOverContribution() const {
    return plan_.whole && mesh_.ranks() > 1 && operation_.receive == operation_.send;
  }
  void putBack();
  bool postResults();
  bool postResultReceives();
  bool testFlights();
  bool sendPiece(int rank, const std::byte* data, size_t bytes, const core::MemoryHandle* memory, int tag);
  bool fail(int rank, std::string why);
  // For an operation without a reduction, or a group of one rank.
  void takeOwnPart();
  bool finished() const;
  const std::byte* contribution() const { return static_cast<const std::byte*>(operation_.send); }

  Mesh& mesh_;
  BlockPool& blocks_;
  const size_t oneStepBytes_;
  const int slot_;
  State state_ = State::free;
  Operation operation_;
  Plan plan_;
  std::vector<size_t> contributed_;  // by rank: bytes of its part that we have sent
  std::vector<size_t> resultSent_;   // by rank: bytes of our part that we have sent
  std::vector<size_t> resultAsked_;  // by rank: bytes of its part for which receives are posted
  // Oldest first; at most kFoldingsAtOnce.
  std::deque<Folding> foldings_;
  std::deque<Flight> flights_;
  // The result, where it is to replace what this rank still sends to others: until they have all of it.
  std::vector<std::byte> held_;
  size_t opened_ = 0;   // bytes of our part for which foldings exist or existed
  size_t reduced_ = 0;  // bytes of our part that are final, from its begin on
  uint64_t bytesSent_ = 0;
  bool refused_ = false;
  int culprit_ = -1;
  std::string why_;
};

}  // namespace weft::coll
