// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <memory>
#include <mutex>

#include "src/coll/backend.h"
#include "src/coll/memory_list.h"
#include "src/coll/spare.h"

// The one kind of Group: a rank's operations in their order, its flushes, its memory and its end, whatever
// backend reduces. A backend moves the operations. The ring counts them, hears the other ranks (in one place:
// hear()), and breaks the group (in one place: breakDown()). Where it has a spare, it decides what a lost
// backend means.
// Invariants: the operations from oldest_ to next_ are those whose end NCCL has not been told, each in slot
// number % kOperations. They begin in that order, so the backends of all ranks see the same turns. Only the
// call that frees a slot tells its result, so a rank's claim about its results is what its NCCL has.
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
  // Owns backend and spare. The clock outlives the ring.
  OperationRing(const Place& place, std::unique_ptr<Backend> backend, std::unique_ptr<Spare> spare = nullptr);
  ~OperationRing() override;  // says goodbye where close() did not, and waits for nothing

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
    running,   // on the backend that the group was opened with
    agreeing,  // the backend is lost, and the ranks ask each other whether they can go on without it
    onSpare,   // the spare reduces
    broken,    // final; why_ is the reason
  };
  struct Memory final : GroupMemory {
    std::unique_ptr<GroupMemory> first;  // of the backend; null: registered when the backend was gone
    std::unique_ptr<GroupMemory> spare;  // null: there is no spare, or it is a GPU's memory
    bool host = true;
  };
  // free -> waiting (started) -> running (begun) -> free (its result is told). The operations of a lost
  // backend go back to waiting.
  struct Slot : GroupRequest {
    enum class State : uint8_t { free, waiting, running };
    void enter(State next) { state = next; }
    State state = State::free;
    Operation operation;    // with the ring's memory, not the backend's
    uint64_t sequence = 0;  // the ring's number, in the order of start()
    uint64_t turn = 0;      // in state running: the backend's count
  };
  // free -> waiting (the fabric flushes) or visible (nothing has to be flushed) -> free (it is told). A flush
  // of a GPU's memory whose backend was lost stays waiting, and is never told to be done.
  struct Flush : GroupRequest {
    enum class State : uint8_t { free, waiting, visible };
    void enter(State next) { state = next; }
    State state = State::free;
    core::Request* request = nullptr;  // in state waiting; null: its backend is lost
    bool host = true;                  // the memory is the host's
    size_t bytes = 0;
  };

  // A state never goes back.
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
  std::shared_ptr<Backend> first() const;  // any thread; null once it is lost

  const Place place_;
  const Clock& clock_;
  std::unique_ptr<Spare> spare_;      // null: there is none; goes after the backend
  std::shared_ptr<Backend> backend_;  // null once it is lost and closing
  Backend* active_;                   // of the operations: the first, and the spare's once that is lost
  State state_ = State::running;
  std::array<Slot, kOperations> slots_;
  std::array<Flush, kFlushes> flushes_;
  uint64_t next_ = 0;         // sequence number of the next operation
  uint64_t oldest_ = 0;       // the first operation whose end NCCL has not been told
  uint64_t waiting_ = 0;      // operations before this one are begun
  uint64_t after_ = 0;        // behind the youngest operation that is done
  uint64_t turns_ = 0;        // operations that the active backend has begun
  uint64_t passes_ = 0;       // data calls so far
  uint64_t bytesBefore_ = 0;  // sent by the backend that was lost
  TimePoint aloneSince_{};    // since then a rank has been gone that an operation needs; default: none
  std::string why_;           // the reason why the backend is lost, or the group broken
  mutable std::mutex mutex_;  // guards backend_ against registering threads; held for no work of a backend
  MemoryList<Memory> memories_;
};

// The group of a mesh's ranks. The mesh belongs to the backend, or to the spare where the backend does not
// hold it.
std::unique_ptr<Group> ringOf(const Mesh& mesh, std::unique_ptr<Backend> backend,
                              std::unique_ptr<Spare> spare = nullptr);

}  // namespace weft::coll
