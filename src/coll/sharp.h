// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>

#include "src/coll/peers.h"
#include "src/coll/sharp_job.h"

// Collective operations in InfiniBand switches, by libsharp_coll. The operations that the switches cannot do,
// which all ranks see alike, the ranks share among themselves. The library tells of no error once an
// operation is begun, so only the ranks' own connections say whether the others are there.
namespace weft::coll {

class SharpMemory final : public GroupMemory {
 public:
  void* registration = nullptr;            // of libsharp_coll
  std::unique_ptr<GroupMemory> peers;      // null: a GPU's, which the ranks do not reduce
  core::MemoryHandle* flushing = nullptr;  // a GPU's, on the connection that flushes it
  bool host = true;
};

class SharpBackend final : public Backend {
 public:
  // `peers` has the mesh that `job` was opened on.
  SharpBackend(std::unique_ptr<SharpJob> job, std::unique_ptr<PeersBackend> peers);
  ~SharpBackend() override;

  Result<std::unique_ptr<GroupMemory>> registerMemory(const MemoryDesc& desc) override;
  void deregisterMemory(GroupMemory& memory) override;
  Begun begin(uint64_t turn, const Operation& operation) override;
  Step advance(uint64_t turn) override;
  Failure failure() override { return failure_.why.empty() ? peers_->failure() : failure_; }
  core::Posted flush(const void* data, size_t bytes, GroupMemory& memory) override;
  Failure flushFailure() override;
  void halt() override { peers_->halt(); }
  Bond& bond() override { return peers_->bond(); }
  bool needsEveryone() const override { return true; }
  uint64_t bytesSent() const override { return bytesSent_ + peers_->bytesSent(); }
  void part() override { peers_->part(); }
  void close(const Clock& clock) override { peers_->close(clock); }

 private:
  // An operation that is under way. free -> inSwitches or amongRanks (begin) -> free (it is done).
  struct Place {
    enum class State : uint8_t { free, inSwitches, amongRanks };
    void enter(State next) { state = next; }
    State state = State::free;
    void* request = nullptr;  // of libsharp_coll
    uint64_t turn = 0;        // the peers' own count of their operations
  };

  Begun beginAmongRanks(Place& place, Operation operation);
  int hand(const Operation& operation, void** request);
  Begun notNow();
  Begun fail(std::string why);
  Status takeMemory(const MemoryDesc& desc, SharpMemory* memory);
  core::RecvComm* flushingComm() const;

  std::unique_ptr<PeersBackend> peers_;  // with the mesh; goes after the job
  std::unique_ptr<SharpJob> job_;
  Mesh& mesh_;
  std::array<Place, kOperations> places_;
  uint64_t peersTurns_ = 0;   // operations that the peers have begun
  TimePoint refusedSince_{};  // another job has had the tree's lock since then; default: none has
  uint64_t bytesSent_ = 0;
  Failure failure_;
};

}  // namespace weft::coll
