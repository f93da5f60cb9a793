// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>

#include "src/coll/exchange.h"
#include "src/coll/flush_table.h"
#include "src/coll/memory_list.h"

// Collective operations without any daemon: each rank reduces its share of the vector and hands it to all the
// others, two steps instead of a ring's 2 (n - 1). Reduces in host memory.
namespace weft::coll {

struct PeersOptions {
  size_t pieceBytes = size_t{64} << 10;  // that are reduced at a time
  size_t blocks = 16;                    // pieces of every rank that can be on their way
  size_t oneStepBytes = 2048;            // vectors up to this are reduced by every rank, in one step
};

class PeersGroup final : public Group {
 public:
  static constexpr int kSlots = 64;  // operations outstanding at a time

  PeersGroup(std::unique_ptr<Mesh> mesh, const PeersOptions& options);
  ~PeersGroup() override;

  Result<GroupMemory*> registerMemory(const MemoryDesc& desc) override;
  Status deregisterMemory(GroupMemory* memory) override;
  Started start(const Operation& operation) override;
  Started flush(const void* data, size_t bytes, GroupMemory* memory) override;
  Finished test(GroupRequest* request) override;
  Error error() const override;
  GroupCounters counters() const override { return counters_; }
  Mesh& mesh() { return *mesh_; }

 private:
  void progress();
  bool hearAlarms();
  std::string blame(const Exchange& exchange) const;
  void breakDown(std::string reason, bool tell);
  void release(PeersMemory& memory);

  std::unique_ptr<Mesh> mesh_;
  BlockPool blocks_;
  std::vector<std::unique_ptr<Exchange>> slots_;
  FlushTable flushes_{this};
  uint64_t next_ = 0;    // sequence number of the next operation
  uint64_t oldest_ = 0;  // that is not done
  uint64_t passes_ = 0;
  GroupCounters counters_;
  std::string broken_;  // why; empty: it is not
  MemoryList<PeersMemory> memories_;
};

}  // namespace weft::coll
