// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "src/coll/exchanges.h"
#include "src/coll/join.h"

// A rank below an aggregation daemon, which is the only member that it exchanges anything with. It announces
// each operation, sends its vector in chunks, each once, and receives the chunks of the result. Threads as in
// exchanges.h.
namespace weft::coll {

class TreeBackend final : public Exchanges {
 public:
  // `chunkBytes` is the group's, the same on all ranks.
  static Result<std::unique_ptr<TreeBackend>> create(Membership membership, int rank, size_t chunkBytes);
  TreeBackend(Membership membership, int rank, size_t chunkBytes);

  Begun begin(uint64_t turn, const Operation& operation) override;
  std::string failure() override;
  Heard hear() override;
  core::Posted flush(const void* data, size_t bytes, GroupMemory& memory) override;
  std::string flushFailure() override { return gone(); }
  void disconnect() override { membership_.pipe->close(); }

 private:
  void plan(const Operation& operation, Plan* plan) const override {
    makeTreePlan(operation, rank_, chunkBytes_, plan);
  }
  std::string nameOf(int member) const override;
  bool passOwn() override;
  std::string gone() const;

  Membership membership_;
  const int rank_;
  const size_t chunkBytes_;  // of the vector or window, per message
  Staging heads_;            // announcements, by place
  core::MemoryHandle* headMemory_ = nullptr;
  std::deque<core::Request*> sending_;  // announcements under way
  uint64_t begun_ = 0;                  // behind the youngest turn that was begun
  uint64_t announced_ = 0;              // turns before this one have been announced
};

}  // namespace weft::coll
