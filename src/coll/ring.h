// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <memory>
#include <mutex>

#include "src/coll/backend.h"
#include "src/coll/memory_list.h"
#include "src/coll/spare.h"

// The one Group there is: a rank's operations in their order, its flushes, its memory and its end, whatever
// reduces. A backend moves the operations; the ring counts them, hears what the other ranks say (one place:
// hear()), breaks the group (one place: breakDown()), and where it has a spare, decides what a lost backend
// means.
//
// Invariants: the operations from oldest_ to next_ are those that NCCL has not been told the end of, each in
// slot number % kOperations. They begin in that order, so the backends of all ranks see the same turns. A
// result is told only by the call that frees its slot, so what the ranks claim to have is what NCCL has.
//
// Threads: data calls from one thread at a time; registering and close() from any other.
namespace weft::coll {

class OperationRing final : public Group {
 public:
  static constexpr size_t kOperations = Backend::kOperations;
  static constexpr size_t kFlushes = 64;

  struct Place {
    int rank = 0;
    int ranks = 0;
    const Clock* clock = nullptr;
  };
  OperationRing(const Place& place, std::unique_ptr<Backend> backend, std::unique_ptr<Spare> spare = nullptr);
  ~OperationRing() override;

  Result<GroupMemory*> registerMemory(const MemoryDesc& desc) override;
  Status deregisterMemory(GroupMemory* memory) override;
  Started start(const Operation& operation) override;
  Started flush(const void* data, size_t bytes, GroupMemory* memory) override;
  Finished test(GroupRequest* request) override;
  Error error() const override;
  GroupCounters counters() const override;
  void close() override;

 private:
  enum class State : uint8_t {
    running,   // on the backend
    agreeing,  // the backend is lost, and the ranks ask each other whether they can go on without it
    onSpare,   // they do
    broken,    // for good; why_ says why
  };
  struct Memory final : GroupMemory {
    std::unique_ptr<GroupMemory> first;  // of the backend; null: registered when that was gone
    std::unique_ptr<GroupMemory> spare;  // null: there is no spare, or it is a GPU's memory
    bool host = true;
  };
  // free -> waiting (started) -> running (begun) -> free (its result is told). A lost backend's operations go
  // back to waiting.
  struct Slot : GroupRequest {
    enum class State : uint8_t { free, waiting, running };
    void enter(State next) { state = next; }
    State state = State::free;
    Operation operation;  // with the ring's memory
    uint64_t sequence = 0;
    uint64_t turn = 0;  // in state running: the backend's count
  };
  // free -> waiting (the fabric flushes) or visible (nothing has to be flushed) -> free (it is told). A flush
  // of a GPU's memory that a lost backend took along stays waiting, and is never told to be done.
  struct Flush : GroupRequest {
    enum class State : uint8_t { free, waiting, visible };
    void enter(State next) { state = next; }
    State state = State::free;
    core::Request* request = nullptr;  // in state waiting; null: its backend is lost
    bool host = true;                  // the memory, which is not a GPU's
    size_t bytes = 0;
  };

  void enter(State next);
  Slot& slotOf(uint64_t sequence) { return slots_[sequence % kOperations]; }
  bool onFirst() const { return !spare_ || active_ != &spare_->backend(); }
  Operation translated(Operation operation) const;
  bool isKnown(const Operation& operation) const;
  Started refuse(const char* why);
  bool begin(Slot& slot);
  Finished finish(Slot& slot);
  Flush* findFlush(const GroupRequest* request);
  Flush* takeFlush();
  Finished testFlush(Flush& flush);
  void keepGoing();
  bool hear();
  bool hearAbsent(const Bond& bond);
  void fail();
  void lose(const std::string& why);
  bool mayBeginAgain(const Operation& operation) const;
  Spare::Claim claim();
  void handOver();
  void agree();
  void beginWaiting();
  void breakDown(std::string why, bool lost = false, const Bond* toldBy = nullptr);
  void release(Memory& memory);

  const Place place_;
  const Clock& clock_;
  std::unique_ptr<Spare> spare_;      // null: there is none; goes after the backend
  std::unique_ptr<Backend> backend_;  // null once it is lost and closing
  Backend* active_;                   // of the operations: the first, and the spare's once that is lost
  State state_ = State::running;
  std::array<Slot, kOperations> slots_;
  std::array<Flush, kFlushes> flushes_;
  uint64_t next_ = 0;     // sequence number of the next operation
  uint64_t oldest_ = 0;   // that NCCL has not been told the end of
  uint64_t waiting_ = 0;  // those before are begun
  uint64_t after_ = 0;    // behind the youngest that is done
  uint64_t turns_ = 0;    // that the active backend has begun
  uint64_t passes_ = 0;
  uint64_t bytesBefore_ = 0;  // sent by the backend that was lost
  TimePoint aloneSince_{};    // a rank has left since then while one needs it; default: none has
  std::string why_;           // the backend is lost, or the group broken
  std::mutex mutex_;          // backend_ while another thread registers; the data calls never wait for it
  MemoryList<Memory> memories_;
};

// The group of a mesh's ranks. Where the backend does not hold the mesh itself, a spare may.
std::unique_ptr<Group> ringOf(const Mesh& mesh, std::unique_ptr<Backend> backend,
                              std::unique_ptr<Spare> spare = nullptr);

}  // namespace weft::coll
