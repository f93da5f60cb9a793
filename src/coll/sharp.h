// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <deque>

#include "src/coll/memory_list.h"
#include "src/coll/peers.h"
#include "src/coll/sharp_job.h"

// Collective operations in InfiniBand switches, by libsharp_coll. What the switches cannot do, which all
// ranks see alike, the ranks share among themselves. The library tells of no error once an operation is
// begun, so the ranks' own connections say whether the others are there.
namespace weft::coll {

class SharpMemory final : public GroupMemory {
 public:
  void* registration = nullptr;            // of libsharp_coll
  GroupMemory* peers = nullptr;            // null: a GPU's, which the ranks do not reduce
  core::MemoryHandle* flushing = nullptr;  // a GPU's, on the connection that flushes it
  bool host = true;
};

class SharpGroup final : public Group {
 public:
  static constexpr size_t kSlots = 64;  // operations outstanding at a time

  // `peers` has the mesh that `job` was opened on.
  SharpGroup(std::unique_ptr<SharpJob> job, std::unique_ptr<PeersGroup> peers);
  ~SharpGroup() override;

  Result<GroupMemory*> registerMemory(const MemoryDesc& desc) override;
  Status deregisterMemory(GroupMemory* memory) override;
  Started start(const Operation& operation) override;
  Started flush(const void* data, size_t bytes, GroupMemory* memory) override;
  Finished test(GroupRequest* request) override;
  Error error() const override;
  GroupCounters counters() const override;

 private:
  enum class State : uint8_t { free, running };
  struct Slot : GroupRequest {
    State state = State::free;
    void* request = nullptr;  // of libsharp_coll
    size_t bytes = 0;
  };

  Slot* freeSlot();
  Started startElsewhere(Operation operation);
  int hand(const Operation& operation, void** request);
  Started notNow();
  Status takeMemory(const MemoryDesc& desc, SharpMemory* memory);
  void release(const SharpMemory& memory);
  core::RecvComm* flushingComm() const;
  Finished testFlush(Flush& flush);
  bool othersAreThere();
  void breakDown(std::string reason);

  std::unique_ptr<PeersGroup> peers_;  // with the mesh; goes after the job
  std::unique_ptr<SharpJob> job_;
  Mesh& mesh_;
  std::vector<Slot> slots_{kSlots};
  FlushTable flushes_{this};
  uint64_t passes_ = 0;
  TimePoint refusedSince_{};  // the tree's lock was somebody else's; default: it was not
  TimePoint aloneSince_{};    // a rank has left while something is outstanding; default: none has
  GroupCounters counters_;
  std::string broken_;
  MemoryList<SharpMemory> memories_;
};

}  // namespace weft::coll
