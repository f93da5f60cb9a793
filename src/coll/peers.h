// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>

#include "src/coll/backend.h"
#include "src/coll/exchange.h"

// The ranks reduce among themselves, without a daemon. Each rank reduces its share of the vector and sends it
// to all others: two steps instead of a ring's 2 (n - 1). Reduces in host memory. The ring owns it; the
// thread of the data calls uses it, registering excepted.
namespace weft::coll {

struct PeersOptions {
  size_t pieceBytes = size_t{64} << 10;  // bytes that are reduced at a time
  size_t blocks = 16;                    // the most blocks of the group; each holds a piece of every rank
  size_t oneStepBytes = 2048;  // vectors up to this size are reduced whole by every rank, in one step
};

class PeersBackend final : public Backend {
 public:
  // The mesh connects all pairs of ranks. The backend owns it.
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
  void disconnect() override { mesh_->close(); }
  void keep(const std::shared_ptr<const void>& memory) override;
  Mesh& mesh() { return *mesh_; }

 private:
  // Exchanges move only in state moving. A state never goes back.
  enum class State : uint8_t {
    moving,
    parted,  // this rank said goodbye
    failed,  // failed_ is the exchange that failed
    halted,  // the group is broken
  };
  void enter(State next) {
    if (next > state_) state_ = next;
  }
  Exchange& exchangeOf(uint64_t turn) { return *exchanges_[turn % kOperations]; }
  // A step of every exchange that is under way.
  void pass();

  std::unique_ptr<Mesh> mesh_;
  BlockPool blocks_;
  Bond bond_;
  std::vector<std::unique_ptr<Exchange>> exchanges_;  // by place, kOperations of them
  State state_ = State::moving;
  bool hasParted_ = false;
  const Exchange* failed_ = nullptr;
  uint64_t next_ = 0;       // the turn after the youngest that was begun
  uint64_t oldest_ = 0;     // no exchange before this turn is running
  uint64_t bytesSent_ = 0;  // by exchanges that are done
};

}  // namespace weft::coll
