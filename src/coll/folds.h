// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "src/coll/pipe.h"

// Reducing a vector in pieces: of each piece every other member sends what it brings in, into a block of
// memory, and when all of that is here the piece is combined. An operation is made of it, a rank's
// (exchange.h) or a daemon's (src/agg/operation.h). Used by the thread that moves the operations.
namespace weft::coll {

// Why an operation cannot go on, and the member to blame; the first one stays.
struct Fault {
  int member = -1;
  std::string why;                        // empty: there is none
  bool set(int from, std::string words);  // false, for the callers
  bool setSize(int from, size_t came, size_t expected);
};

// Room for a piece of every member's vector, and behind them for one result.
struct Block {
  Staging memory;
  std::vector<core::MemoryHandle*> receiving, sending;  // by member; null: this member, or of no use
  int uses = 0;                                         // sends out of it that are not done, and its holder
};

// The blocks of a group, made at first use, `most` at most. Destroyed after all operations.
class BlockPool {
 public:
  struct Options {
    size_t pieceBytes = 0;
    size_t most = 0;
    size_t atOnce = 4;   // of one operation
    size_t kept = 4;     // for the oldest, for which all others may wait
    bool sends = false;  // results leave out of the blocks
  };
  BlockPool(const Members& members, const Options& options) : members_(members), options_(options) {}
  static size_t blockBytes(size_t members, size_t pieceBytes) { return (members + 1) * pieceBytes; }

  // Null: none is free now. An error where no new block can be made: the operation would otherwise wait for
  // ever. The block has one use.
  Result<Block*> take(bool oldest);
  void release(Block* block) {
    if (--block->uses == 0) free_.push_back(block);
  }
  Status fill();  // makes all of them now
  const Options& options() const { return options_; }
  // The room for that member's piece; for the result it is members.count().
  std::byte* piece(const Block& block, int member) const {
    return block.memory.data() + static_cast<size_t>(member) * options_.pieceBytes;
  }

 private:
  Status make();

  const Members& members_;
  const Options options_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<Block*> free_;
};

class Folds {
 public:
  // A piece that is being reduced: one receive from every other member that brings something in.
  struct Folding {
    Block* block = nullptr;
    Span piece;                            // of the vector
    std::vector<core::Request*> receives;  // by member; null: not posted, or nothing comes
    int unposted = 0;                      // the first member whose receive may not be posted
    int next = 0;                          // the first member whose piece is not known to be here
  };

  Folds(const Members& members, BlockPool& blocks) : members_(members), blocks_(blocks) {}
  Folds(const Folds&) = delete;
  Folds& operator=(const Folds&) = delete;
  virtual ~Folds() = default;
  const Fault& fault() const { return fault_; }
  bool refused() const { return refused_; }  // there was more to post, and no room for it
  // Goes up whenever something has come or gone.
  uint64_t activity() const { return activity_; }

 protected:
  void beginFolds(uint64_t turn, Span whole);
  // False of these: the operation failed, and fault() says why.
  bool openFolds(bool oldest);
  bool postFolds();
  bool advanceFolds();
  bool foldsAreDone() const { return foldings_.empty() && opened_ == whole_.end; }

  // The bytes of the piece that the member brings in; 0: it sends no message.
  virtual size_t bytesFrom(int member, Span piece) const = 0;
  virtual bool mayCombine() const { return true; }
  // All of it is here. Takes a use of the block where its memory is needed for longer.
  virtual bool combine(const Folding& folding) = 0;

  const Members& members_;
  BlockPool& blocks_;
  Fault fault_;
  uint64_t turn_ = 0;
  bool refused_ = false;
  int late_ = -1;  // the member for which the oldest piece waited last; -1: none
  uint64_t activity_ = 0;

 private:
  bool post(Folding& folding);
  bool test(Folding& folding);

  Span whole_;
  size_t opened_ = 0;             // pieces before this byte have foldings, or had them
  std::deque<Folding> foldings_;  // oldest first
};

}  // namespace weft::coll
