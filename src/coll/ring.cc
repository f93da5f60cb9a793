// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/ring.h"

#include <algorithm>
#include <exception>

#include "src/base/log.h"
#include "src/base/reserve.h"
#include "src/coll/plan.h"

// The ring, the same for all backends: operations, flushes, and the end.
namespace weft::coll {

namespace {

constexpr uint64_t kLookEvery = 256;        // data calls between two looks at the other members
constexpr Milliseconds kPartedGrace{2000};  // a rank that left had its results; ours come within this time

}  // namespace

class OperationRing::Watched {
 public:
  explicit Watched(OperationRing& ring) : ring_(ring), before_(std::uncaught_exceptions()) {}
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
  ~Watched() {
    if (std::uncaught_exceptions() <= before_) return;
    const MustNotFail telling;
    ring_.breakDown(format("rank %d has no memory left", ring_.place_.rank));
  }

 private:
  OperationRing& ring_;
  const int before_;
};

std::unique_ptr<Group> ringOf(const Mesh& mesh, std::unique_ptr<Backend> backend) {
  return std::make_unique<OperationRing>(OperationRing::Place{mesh.rank(), mesh.ranks(), &mesh.clock()},
                                         std::move(backend));
}

OperationRing::OperationRing(const Place& place, std::unique_ptr<Backend> backend)
    : place_(place), backend_(std::move(backend)) {
  for (Slot& slot : operations_) slot.group = this;
  for (Slot& slot : flushes_) slot.group = this;
}

// Nothing lands in the memory afterwards, whether or not it was deregistered.
void OperationRing::close() {
  const MustNotFail closing;
  backend_->stop();
  for (const auto& memory : memories_) backend_->deregisterMemory(*memory);
  backend_->disconnect();
}

Error OperationRing::error() const {
  return Error(Code::remote, "collective group", why_.empty() ? "nothing is wrong" : why_);
}

GroupCounters OperationRing::counters() const {
  return {turns_, backend_->bytesSent()};
}

// No lock is held while the fabric registers.
Result<GroupMemory*> OperationRing::registerMemory(const MemoryDesc& desc) {
  TRY(auto memory, backend_->registerMemory(desc));
  const std::lock_guard lock(mutex_);
  memories_.push_back(std::move(memory));
  return memories_.back().get();
}

Status OperationRing::deregisterMemory(GroupMemory* memory) {
  std::unique_ptr<GroupMemory> gone;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(memories_.begin(), memories_.end(),
                                    [&](const auto& one) { return one.get() == memory; });
    if (found == memories_.end())
      return Error(Code::invalidArgument, "deregistering memory", "it is not registered with this group");
    gone = std::move(*found);
    memories_.erase(found);
  }
  backend_->deregisterMemory(*gone);
  return {};
}

// Operations:

// A call that NCCL must not make breaks the group on all ranks: its other ranks would wait for this one.
Started OperationRing::refuse(const std::string& why) {
  breakDown(format("rank %d %s", place_.rank, why.c_str()));
  return {false, nullptr};
}

Started OperationRing::start(const Operation& operation) {
  const Watched watched(*this);
  return startWatched(operation);
}

// Null with ok: not now, NCCL calls again. An operation never overtakes another one.
Started OperationRing::startWatched(const Operation& operation) {
  listen();
  if (broken()) return {false, nullptr};
  if (const char* fault = faultOf(operation, place_.rank, place_.ranks))
    return refuse(format("started an operation that cannot be: %s", fault));
  Slot& slot = operations_[turns_ % kOperations];
  if (slot.taken) return {};
  switch (backend_->begin(turns_, operation)) {
    case Backend::Begun::notNow:
      return {};
    case Backend::Begun::failed:
      fail();
      return {!broken(), nullptr};
    case Backend::Begun::begun:
      break;
  }
  slot.taken = true;
  slot.turn = turns_++;
  slot.bytes = receivedBytes(operation, place_.rank);
  return {true, &slot};
}

// A request is a flush if it lies in the array of flushes; NCCL passes both kinds.
Finished OperationRing::test(GroupRequest* request) {
  const Watched watched(*this);
  auto& slot = static_cast<Slot&>(*request);
  return testWatched(slot);
}

Finished OperationRing::testWatched(Slot& slot) {
  listen();
  if (&slot >= flushes_.data() && &slot < flushes_.data() + flushes_.size()) return testFlush(slot);
  const Backend::Step step = backend_->advance(slot.turn);
  if (step == Backend::Step::failed) fail();
  if (step != Backend::Step::done) return {!broken(), false, 0};
  slot.taken = false;
  return {true, true, slot.bytes};
}

// Flushes:

Started OperationRing::flush(const void* data, size_t bytes, GroupMemory* memory) {
  const Watched watched(*this);
  return flushWatched(data, bytes, *memory);
}

// NCCL takes ok without a request for a flush that is done, so a lack of places is an error. A GPU may see
// older bytes until the connection that brought the data has flushed it; where that is lost nothing can.
Started OperationRing::flushWatched(const void* data, size_t bytes, GroupMemory& memory) {
  listen();
  if (broken()) return {false, nullptr};
  const auto slot =
      std::find_if(flushes_.begin(), flushes_.end(), [](const Slot& one) { return !one.taken; });
  if (slot == flushes_.end())
    return refuse("starts a flush while 64 flushes are under way, which is the most");
  const core::Posted posted = backend_->flush(data, bytes, memory);
  if (!posted.ok) return breakDown(backend_->flushFailure()), Started{false, nullptr};
  slot->taken = true;
  slot->request = posted.request;
  slot->bytes = bytes;
  return {true, &*slot};
}

Finished OperationRing::testFlush(Slot& flush) {
  if (broken()) return {false, false, 0};
  const core::Tested tested = flush.request ? core::test(flush.request, nullptr) : core::Tested{true, true};
  if (!tested.ok) breakDown(backend_->flushFailure());
  if (!tested.ok || !tested.done) return {tested.ok, false, 0};
  flush.taken = false;
  return {true, true, flush.bytes};
}

// The group's end:

// Every data call begins with this: now and then a look at the other members.
void OperationRing::listen() {
  if (passes_++ % kLookEvery == 0) (void)hear();
}

// The one place where the ring hears the others. False: their word, or their end, broke the group. A rank
// that left has its results, so ours come soon; where they do not within kPartedGrace it left too early.
bool OperationRing::hear() {
  if (broken()) return false;
  const Backend::Heard heard = backend_->hear();
  const bool left = heard.state == Pipe::State::left;
  if (heard.state == Pipe::State::open || (left && !backend_->needsEveryone())) return true;
  const TimePoint now = place_.clock->now();
  if (aloneSince_ == TimePoint{}) aloneSince_ = now;
  if (left && now - aloneSince_ < kPartedGrace) return true;
  breakDown(heard.why);
  return false;
}

// A step of the backend failed. The words of another member are better than the error that was seen here, so
// hear() comes first.
void OperationRing::fail() {
  if (hear()) breakDown(backend_->failure());
}

// The one place where a group breaks. Every other member is told: some may not have heard it yet, and would
// see only that this rank is gone.
void OperationRing::breakDown(const std::string& why) {
  if (broken()) return;
  state_ = State::broken;
  why_ = why;
  WEFT_LOG(error, "collective group of %d ranks: %s", place_.ranks, why_.c_str());
  backend_->fail(why_);
}

}  // namespace weft::coll
