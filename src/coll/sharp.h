// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>

#include "src/coll/peers.h"
#include "src/coll/sharp_job.h"

// Collective operations in InfiniBand switches, by libsharp_coll. The ranks do among themselves those
// operations that the switches cannot; all ranks decide alike (SharpJob::does). The library reports no error
// once an operation is begun, so only the ranks' own connections show whether the others are there.
// The ring owns it; threads as in backend.h.
namespace weft::coll {

class SharpMemory final : public GroupMemory {
 public:
  void* registration = nullptr;            // libsharp_coll's handle
  std::unique_ptr<GroupMemory> peers;      // for operations among the ranks; null: a GPU's memory
  core::MemoryHandle* flushing = nullptr;  // a GPU's memory: its handle on flushingComm()
  bool host = true;
};

class SharpBackend final : public Backend {
 public:
  // `peers` owns the mesh that `job` was opened on.
  SharpBackend(std::unique_ptr<SharpJob> job, std::unique_ptr<PeersBackend> peers);
  ~SharpBackend() override;

  Result<std::unique_ptr<GroupMemory>> registerMemory(const MemoryDesc& desc) override;
  void deregisterMemory(GroupMemory& memory) override;
  Begun begin(uint64_t turn, const Operation& operation) override;
  Step advance(uint64_t turn) override;
  std::string failure() override { return failure_.empty() ? peers_->failure() : failure_; }
  core::Posted flush(const void* data, size_t bytes, GroupMemory& memory) override;
  std::string flushFailure() override;
  Heard hear() override { return peers_->hear(); }
  void fail(const std::string& why) override { peers_->fail(why); }
  bool needsEveryone() const override { return true; }
  uint64_t bytesSent() const override { return bytesSent_ + peers_->bytesSent(); }
  void stop() override;
  void disconnect() override;

 private:
  // An operation under way. free -> inSwitches or amongRanks (begin) -> free (it is done).
  struct Place {
    enum class State : uint8_t { free, inSwitches, amongRanks };
    void enter(State next) { state = next; }
    State state = State::free;
    void* request = nullptr;  // libsharp_coll's, in state inSwitches
    uint64_t turn = 0;        // in state amongRanks: the peers' own count of their operations
  };

  void freeRequests();
  // Hands the operation to the peers, whose turns are counted apart.
  Begun beginAmongRanks(Place& place, Operation operation);
  // Begins the operation in the library; its error code, 0: begun.
  int hand(const Operation& operation, void** request);
  Begun notNow();  // the tree is locked
  Begun giveUp(std::string why);
  // Registers with the library and with the peers or the flushing comm. On an error, the parts that were made
  // stay in `memory`.
  Status takeMemory(const MemoryDesc& desc, SharpMemory* memory);
  // The connection that flushes a GPU's memory: to the first other rank; null: a group of one rank.
  core::RecvComm* flushingComm() const;

  std::unique_ptr<PeersBackend> peers_;  // owns the mesh, so it is destroyed after the job
  std::unique_ptr<SharpJob> job_;
  Mesh& mesh_;
  std::array<Place, kOperations> places_;
  uint64_t peersTurns_ = 0;   // operations that the peers have begun
  TimePoint refusedSince_{};  // since then another job has had the tree's lock; default: none has
  uint64_t bytesSent_ = 0;
  std::string failure_;
};

}  // namespace weft::coll
