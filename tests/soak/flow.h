// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <deque>

#include "tests/soak/plan.h"
#include "tests/system/driver/run.h"
#include "tests/system/driver/traffic.h"

// One comm of a soak and its traffic, driven a step at a time until every message went through or the first
// call failed. Checks every byte, and that a comm that failed goes on failing. One thread.
namespace weft::soak {

using netdriver::Comm;
using netdriver::HostBuffer;
using netdriver::Registration;
using system::Random;
using system::Run;

class Flow {
 public:
  Flow(Run& run, Comm comm, Traffic traffic)
      : run_(run), comm_(std::move(comm)), traffic_(std::move(traffic)) {}
  virtual ~Flow() = default;
  Flow(const Flow&) = delete;
  Flow& operator=(const Flow&) = delete;

  // Nothing follows the first call that failed but closing.
  void step();
  bool over() const { return failed() || done(); }
  bool failed() const { return failure_ != ncclSuccess; }
  ncclResult_t failure() const { return failure_; }
  virtual bool done() const = 0;
  size_t groupsDone() const { return groupsDone_; }

  // Gives everything back, in NCCL's order: registration, comm; the memory goes with the flow.
  void close();

 protected:
  bool registerRows(size_t rows, size_t rowBytes);
  virtual ncclResult_t advance() = 0;
  // Any data call once more, on a comm that failed.
  virtual ncclResult_t again() = 0;
  const Traffic& traffic() const { return traffic_; }
  std::byte* row(size_t i) const { return buffer_.data() + i * rowBytes_; }
  size_t rowBytes() const { return rowBytes_; }
  netdriver::Net& net() const { return comm_.net(); }

  Run& run_;
  Comm comm_;
  HostBuffer buffer_;
  Registration registration_;
  size_t groupsDone_ = 0;

 private:
  Traffic traffic_;
  size_t rowBytes_ = 0;
  ncclResult_t failure_ = ncclSuccess;
};

// Posts a few groups ahead, tests all that are posted, verifies what is done.
class RecvFlow : public Flow {
 public:
  RecvFlow(Run& run, Comm comm, Traffic traffic);
  bool done() const override { return groupsDone_ == traffic().groups.size(); }

 private:
  static constexpr size_t kRows = 4;
  struct Posted {
    size_t group = 0;
    size_t row = 0;
    void* request = nullptr;
  };

  ncclResult_t advance() override;
  ncclResult_t again() override;
  ncclResult_t postNext();
  netdriver::RecvArgs arguments(const Group& group, size_t row) const;
  void verify(const Posted& posted, const system::Sizes& sizes);
  void verifyUnused(const Posted& posted);
  size_t freeRow() const;

  std::vector<Posted> posted_;
  size_t nextGroup_ = 0;
};

// Sends in any order that keeps each tag's own; what is turned away is tried again later.
class SendFlow : public Flow {
 public:
  SendFlow(Run& run, Comm comm, Traffic traffic, uint64_t seed);
  bool done() const override { return waiting_.empty() && sending_.empty(); }

 private:
  static constexpr size_t kRows = 12;
  static constexpr size_t kLookAhead = 6;
  struct Sending {
    size_t row = 0;
    void* request = nullptr;
  };

  ncclResult_t advance() override;
  ncclResult_t again() override;
  ncclResult_t post(size_t which);
  ncclResult_t testAll();
  // A message that no earlier one of its tag waits before.
  size_t pick();
  size_t freeRow() const;

  Random random_;
  std::deque<Message> waiting_;
  std::vector<Sending> sending_;
};

}  // namespace weft::soak
