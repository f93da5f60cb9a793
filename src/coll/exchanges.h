// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <deque>

#include "src/coll/backend.h"
#include "src/coll/exchange.h"

// What the two backends have in common that move operations over pipes, peers.h and tree.h: the exchanges in
// their order, memory on all comms, and the look at the other members. The ring owns it; the thread of the
// data calls uses it, registering excepted.
namespace weft::coll {

class Exchanges : public Backend {
 public:
  Result<std::unique_ptr<GroupMemory>> registerMemory(const MemoryDesc& desc) override;
  void deregisterMemory(GroupMemory& memory) override;
  Begun begin(uint64_t turn, const Operation& operation) override;
  Step advance(uint64_t turn) override;
  std::string failure() override;
  Heard hear() override;
  void fail(const std::string& why) override;
  uint64_t bytesSent() const override { return bytesSent_; }

 protected:
  // Exchanges move only in state moving. A state never goes back.
  enum class State : uint8_t { moving, failed, halted };
  // The members are filled in by the constructor of the backend.
  Exchanges(const BlockPool::Options& blocks, size_t resultBytes);

  virtual void plan(const Operation& operation, Plan* plan) const = 0;
  virtual std::string nameOf(int member) const = 0;
  // The backend's own messages, in each pass. False: failed, and fault_ says why.
  virtual bool passOwn() { return true; }
  State state() const { return state_; }
  void enter(State next) { state_ = std::max(state_, next); }

  Members members_;
  Fault fault_;

 private:
  Exchange& exchangeOf(uint64_t turn) { return *exchanges_[turn % kOperations]; }
  void pass();

  BlockPool blocks_;
  std::vector<std::unique_ptr<Exchange>> exchanges_;  // by place, kOperations of them
  std::deque<Exchange*> moving_;                      // those that are not done, oldest first
  State state_ = State::moving;
  uint64_t bytesSent_ = 0;
};

}  // namespace weft::coll
