// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <vector>

#include "src/coll/backend.h"
#include "src/coll/mesh.h"

// The one kind of Group: a rank's operations in their order, its flushes, its memory and its end, whatever
// backend reduces. A backend moves the operations. The ring counts them, hears the other members (in one
// place: hear()), and breaks the group (in one place: breakDown()).
// Threads: data calls from one thread at a time; registering and close() from any other thread.
namespace weft::coll {

class OperationRing final : public Group {
 public:
  static constexpr size_t kOperations = Backend::kOperations;
  static constexpr size_t kFlushes = 64;

  // This rank's place in the group.
  struct Place {
    int rank = 0;
    int ranks = 0;
    const Clock* clock = nullptr;
  };
  // Owns the backend. The clock outlives the ring.
  OperationRing(const Place& place, std::unique_ptr<Backend> backend);

  Result<GroupMemory*> registerMemory(const MemoryDesc& desc) override;
  Status deregisterMemory(GroupMemory* memory) override;
  Started start(const Operation& operation) override;
  Started flush(const void* data, size_t bytes, GroupMemory* memory) override;
  Finished test(GroupRequest* request) override;
  Error error() const override;
  GroupCounters counters() const override;
  void close() override;

 private:
  enum class State : uint8_t { running, broken };  // broken is final; why_ is the reason
  // An operation whose end NCCL has not been told, or a flush. What becomes of it meanwhile the backend and
  // the fabric know.
  struct Slot : GroupRequest {
    bool taken = false;
    uint64_t turn = 0;                 // of an operation
    core::Request* request = nullptr;  // of a flush; null: nothing has to be flushed
    size_t bytes = 0;                  // that NCCL is told
  };
  // Breaks the group when an exception passes by, which is for want of memory: the other ranks would wait for
  // this one for ever.
  class Watched;

  bool broken() const { return state_ == State::broken; }
  Started refuse(const std::string& why);
  Started startWatched(const Operation& operation);
  Started flushWatched(const void* data, size_t bytes, GroupMemory& memory);
  Finished testWatched(Slot& place);
  Finished testFlush(Slot& flush);
  void listen();
  bool hear();
  void fail();
  void breakDown(const std::string& why);

  const Place place_;
  const std::unique_ptr<Backend> backend_;
  State state_ = State::running;
  std::array<Slot, kOperations> operations_;
  std::array<Slot, kFlushes> flushes_;
  uint64_t turns_ = 0;      // operations that have begun
  uint64_t passes_ = 0;     // data calls so far
  TimePoint aloneSince_{};  // since then a rank has been gone that an operation needs; default: none
  std::string why_;         // the reason why the group is broken
  std::mutex mutex_;        // guards memories_
  std::vector<std::unique_ptr<GroupMemory>> memories_;
};

// The group of a mesh's ranks.
std::unique_ptr<Group> ringOf(const Mesh& mesh, std::unique_ptr<Backend> backend);

}  // namespace weft::coll
