// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>

#include "src/coll/backend.h"
#include "src/coll/exchange.h"

// The ranks reduce among themselves, without any daemon: each rank reduces its share of the vector and hands
// it to all the others, two steps instead of a ring's 2 (n - 1). Reduces in host memory.
namespace weft::coll {

struct PeersOptions {
  size_t pieceBytes = size_t{64} << 10;  // reduced at a time
  size_t blocks = 16;                    // pieces of every rank that can be on their way
  size_t oneStepBytes = 2048;            // vectors up to this are reduced by every rank, in one step
};

class PeersBackend final : public Backend {
 public:
  // The mesh connects all pairs of ranks.
  PeersBackend(std::unique_ptr<Mesh> mesh, const PeersOptions& options);

  Result<std::unique_ptr<GroupMemory>> registerMemory(const MemoryDesc& desc) override;
  void deregisterMemory(GroupMemory& memory) override;
  Begun begin(uint64_t turn, const Operation& operation) override;
  Step advance(uint64_t turn) override;
  Failure failure() override;
  void halt() override { enter(State::halted); }
  Bond& bond() override { return bond_; }
  uint64_t bytesSent() const override { return bytesSent_; }
  void part() override;
  void close(const Clock& clock) override;
  Mesh& mesh() { return *mesh_; }

 private:
  // The exchanges move only in state moving; a state never goes back.
  enum class State : uint8_t {
    moving,
    parted,  // this rank said goodbye
    failed,  // failed_ is the exchange that did
    halted,  // the group is broken
  };
  void enter(State next) {
    if (next > state_) state_ = next;
  }
  Exchange& exchangeOf(uint64_t turn) { return *exchanges_[turn % kOperations]; }
  void pass();

  std::unique_ptr<Mesh> mesh_;
  BlockPool blocks_;
  Bond bond_;
  std::vector<std::unique_ptr<Exchange>> exchanges_;
  State state_ = State::moving;
  const Exchange* failed_ = nullptr;
  uint64_t next_ = 0;    // behind the youngest turn that was begun
  uint64_t oldest_ = 0;  // none before this one still moves
  uint64_t bytesSent_ = 0;
};

}  // namespace weft::coll
