// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <deque>
#include <vector>

#include "src/coll/mesh.h"
#include "src/coll/plan.h"

// An operation that the ranks share among themselves: its sends, its receives and the reduction between them.
// Owned by the peers (peers.h), which call progress until it is done. Used by the thread of the data calls.
namespace weft::coll {

// A registration on every comm of the group.
class PeersMemory final : public GroupMemory {
 public:
  std::vector<core::MemoryHandle*> sending;  // by rank; null for this one
  std::vector<core::MemoryHandle*> receiving;
};

// Room for a piece of every rank's vector, in which the pieces that the others send lie until all are here.
struct Block {
  Staging memory;
  std::vector<core::MemoryHandle*> handles;  // by rank
};

// The group's blocks, made when first needed, at most so many.
class BlockPool {
 public:
  BlockPool(Mesh& mesh, size_t pieceBytes, size_t most) : mesh_(mesh), pieceBytes_(pieceBytes), most_(most) {}
  // Null: none is left for now. Some are kept for the oldest operation, on which all others may have to wait.
  // An error where a new one cannot be made: the operation would wait for it for ever.
  Result<Block*> take(bool oldest);
  void give(Block* block) { free_.push_back(block); }
  size_t pieceBytes() const { return pieceBytes_; }
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
  // free -> running (begin) -> done (nothing is left to move) -> free (the ring has been told).
  enum class State : uint8_t { free, running, done };
  enum class Step : uint8_t { going, done, failed };

  Exchange(Mesh& mesh, BlockPool& blocks, size_t oneStepBytes, int slot)
      : mesh_(mesh), blocks_(blocks), oneStepBytes_(oneStepBytes), slot_(slot) {}

  State state() const { return state_; }
  void enter(State next) { state_ = next; }
  void begin(const Operation& operation);
  // `oldest`: no exchange before this one moves, so it may have the last blocks. `mayPost`: all before it
  // have posted what they can.
  Step progress(bool oldest, bool mayPost);
  bool refused() const { return refused_; }  // there was more to post, and no room
  int culprit() const { return culprit_; }   // when failed: the rank, and why
  const std::string& why() const { return why_; }
  uint64_t bytesSent() const { return bytesSent_; }

 private:
  struct Flight {
    core::Request* request;
    size_t bytes;
    int rank;
    bool sends;
  };
  // A piece of this rank's part that is being reduced.
  struct Folding {
    Block* block;
    Part piece;
    std::vector<core::Request*> receives;  // by rank
    int unposted;                          // receives
    int next;                              // the first rank whose piece is not here
  };

  int self() const { return mesh_.rank(); }
  const Part& own() const { return plan_.parts[static_cast<size_t>(self())]; }
  bool postContributions();
  bool postReceives(Folding& folding);
  bool openFolding(bool oldest);
  bool postFoldings();
  bool advanceFoldings();
  bool testReceives(Folding& folding);
  void fold(const Folding& folding);
  bool postResults();
  bool postResultReceives();
  bool testFlights();
  bool sendPiece(int rank, const std::byte* data, size_t bytes, const core::MemoryHandle* memory, int tag);
  bool fail(int rank, std::string why);
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
  std::vector<size_t> contributed_;  // by rank: bytes of its part we sent
  std::vector<size_t> resultSent_;   // by rank: bytes of our part
  std::vector<size_t> resultAsked_;  // by rank: bytes of its part we posted receives for
  std::deque<Folding> foldings_;
  std::deque<Flight> flights_;
  size_t opened_ = 0;   // bytes of our part for which receives are posted, or about to be
  size_t reduced_ = 0;  // bytes of our part that are final
  uint64_t bytesSent_ = 0;
  bool refused_ = false;
  int culprit_ = -1;
  std::string why_;
};

}  // namespace weft::coll
