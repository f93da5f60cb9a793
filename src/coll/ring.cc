// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/ring.h"

#include <algorithm>

#include "src/base/log.h"
#include "src/base/reserve.h"
#include "src/coll/plan.h"

// The ring, the same for all backends: operations, flushes, the bond, and the change to the spare.
namespace weft::coll {

namespace {

constexpr uint64_t kLookEvery = 256;        // data calls between two looks at the bond
constexpr Milliseconds kPartedGrace{2000};  // a rank that left had its results; ours come within this time

bool reduces(const Operation& operation) {
  return operation.kind == OperationKind::allReduce || operation.kind == OperationKind::reduceScatter;
}

// True: registering failed since the backend is gone. That is no error where a spare exists: the next
// operation finds the loss, and the ranks go on among themselves.
bool isLoss(const Error& error, const Backend& backend) {
  return error.code() == Code::remote || error.code() == Code::timeout || !backend.isReachable();
}

}  // namespace

std::unique_ptr<Group> ringOf(const Mesh& mesh, std::unique_ptr<Backend> backend,
                              std::unique_ptr<Spare> spare) {
  const OperationRing::Place place{mesh.rank(), mesh.ranks(), &mesh.clock()};
  return std::make_unique<OperationRing>(place, std::move(backend), std::move(spare));
}

OperationRing::OperationRing(const Place& place, std::unique_ptr<Backend> backend,
                             std::unique_ptr<Spare> spare)
    : place_(place),
      clock_(*place.clock),
      spare_(std::move(spare)),
      backend_(std::move(backend)),
      active_(backend_.get()) {
  for (Slot& slot : slots_) slot.group = this;
  for (Flush& flush : flushes_) flush.group = this;
}

OperationRing::~OperationRing() {
  const MustNotFail closing;
  if (backend_) backend_->part();
  if (spare_) spare_->backend().part();
}

// Nothing lands in the memory afterwards, whether or not it was deregistered.
void OperationRing::close() {
  const MustNotFail closing;
  if (backend_) backend_->part();
  if (backend_) backend_->close(clock_);
  if (spare_) {
    spare_->closing().wait(clock_);
    spare_->backend().part();
    spare_->backend().close(clock_);
  }
  for (const auto& memory : memories_.takeAll()) release(*memory);
  if (backend_) backend_->disconnect();
  if (spare_) spare_->backend().disconnect();
}

std::shared_ptr<Backend> OperationRing::first() const {
  const std::lock_guard lock(mutex_);
  return backend_;
}

// A lighter state is ignored, so that a broken group stays broken.
void OperationRing::enter(State next) {
  if (next <= state_) return;
  state_ = next;
}

Error OperationRing::error() const {
  return Error(Code::remote, "collective group", why_.empty() ? "nothing is wrong" : why_);
}

GroupCounters OperationRing::counters() const {
  GroupCounters all;
  all.operations = next_;
  all.bytesSent = bytesBefore_;
  if (onFirst()) all.bytesSent += backend_->bytesSent();
  if (spare_) all.bytesSent += spare_->backend().bytesSent();
  return all;
}

// Memory:

// No lock is held while the fabric registers: what keeps the backend from going meanwhile is the share of it
// that this call has.
Result<GroupMemory*> OperationRing::registerMemory(const MemoryDesc& desc) {
  auto memory = std::make_unique<Memory>();
  memory->host = desc.kind == MemoryKind::host;
  const bool spared = spare_ && memory->host;
  const auto backend = first();
  if (backend) {
    auto first = backend->registerMemory(desc);
    if (!first && !(spared && isLoss(first.error(), *backend))) return first.takeError();
    if (first) memory->first = first.take();
  } else if (!spared) {
    return Error(Code::unavailable, "registering memory",
                 "the aggregation daemon is gone, and the ranks among themselves only reduce host memory");
  }
  if (spared) {
    auto spare = spare_->backend().registerMemory(desc);
    if (!spare && memory->first) backend->deregisterMemory(*memory->first);
    if (!spare) return spare.takeError();
    memory->spare = spare.take();
  }
  return memories_.keep(std::move(memory));
}

// The memory must not be given back while work of a lost backend may still land in it. Closing deregisters
// what the backend had registered.
void OperationRing::release(Memory& memory) {
  if (memory.spare) spare_->backend().deregisterMemory(*memory.spare);
  if (!memory.first) return;
  if (const auto backend = first()) return backend->deregisterMemory(*memory.first);
  spare_->closing().wait(clock_);
}

Status OperationRing::deregisterMemory(GroupMemory* memory) {
  TRY(const auto gone, memories_.take(memory));
  release(*gone);
  return {};
}

// The operation with the memory as the active backend knows it. Two backends register the same range each in
// its way.
Operation OperationRing::translated(Operation operation) const {
  for (GroupMemory** memory : {&operation.sendMemory, &operation.receiveMemory}) {
    if (!*memory) continue;
    const auto& known = static_cast<const Memory&>(**memory);
    *memory = onFirst() ? known.first.get() : known.spare.get();
  }
  return operation;
}

// False: some memory of the operation was registered when the backend was gone already, so it never knew the
// memory.
bool OperationRing::isKnown(const Operation& operation) const {
  for (const GroupMemory* memory : {operation.sendMemory, operation.receiveMemory})
    if (memory && !static_cast<const Memory*>(memory)->first) return false;
  return true;
}

// Operations:

// A call that NCCL must not make breaks the group on all ranks: its other ranks would wait for this one.
Started OperationRing::refuse(const char* why) {
  breakDown(format("rank %d %s", place_.rank, why));
  return {false, nullptr};
}

// Null with ok: not now, NCCL calls again. An operation never overtakes another one.
Started OperationRing::start(const Operation& operation) {
  keepGoing();
  if (state_ == State::broken) return {false, nullptr};
  if (const char* fault = faultOf(operation, place_.rank, place_.ranks))
    return refuse(format("started an operation that cannot be: %s", fault).c_str());
  Slot& slot = slotOf(next_);
  const bool inLine = state_ == State::agreeing || waiting_ < next_ || slot.state != Slot::State::free;
  if (inLine) return {};
  slot.operation = operation;
  slot.sequence = next_;
  slot.enter(Slot::State::waiting);
  if (!begin(slot)) {
    slot.enter(Slot::State::free);
    return {state_ != State::broken, nullptr};
  }
  waiting_ = ++next_;
  return {true, &slot};
}

// Hands a waiting operation to the active backend. False: not now, or it failed (the state says so).
bool OperationRing::begin(Slot& slot) {
  if (onFirst() && !isKnown(slot.operation)) {
    lose(backend_->loss().why);
    return false;
  }
  switch (active_->begin(turns_, translated(slot.operation))) {
    case Backend::Begun::begun:
      slot.turn = turns_++;
      slot.enter(Slot::State::running);
      return true;
    case Backend::Begun::failed:
      fail();
      return false;
    case Backend::Begun::notNow:
      return false;
  }
  return false;
}

// Frees the slot and tells the result: from here on NCCL has it, and it counts in after_.
Finished OperationRing::finish(Slot& slot) {
  slot.enter(Slot::State::free);
  after_ = std::max(after_, slot.sequence + 1);
  while (oldest_ < next_ && slotOf(oldest_).state == Slot::State::free) oldest_++;
  return {true, true, receivedBytes(slot.operation, place_.rank)};
}

Finished OperationRing::test(GroupRequest* request) {
  keepGoing();
  if (Flush* flush = findFlush(request)) return testFlush(*flush);
  auto& slot = static_cast<Slot&>(*request);
  if (slot.state == Slot::State::running) {
    const Backend::Step step = active_->advance(slot.turn);
    if (step == Backend::Step::done) return finish(slot);
    if (step == Backend::Step::failed) fail();
  }
  return {state_ != State::broken, false, 0};
}

// Flushes:

// A request is a flush if it lies in the array of flushes; NCCL passes both kinds to test().
OperationRing::Flush* OperationRing::findFlush(const GroupRequest* request) {
  const auto* place = static_cast<const void*>(request);
  const bool here = place >= flushes_.data() && place < flushes_.data() + flushes_.size();
  return here ? static_cast<Flush*>(const_cast<GroupRequest*>(request)) : nullptr;
}

OperationRing::Flush* OperationRing::takeFlush() {
  for (Flush& flush : flushes_)
    if (flush.state == Flush::State::free) return &flush;
  return nullptr;
}

// NCCL takes ok without a request for a flush that is done, so a lack of places is an error. Data in host
// memory is visible as soon as it is received, whatever became of the backend. A GPU may see older bytes
// until the connection that brought the data has flushed it. That connection ends with the backend: nothing
// can flush from then on, and the group breaks, since the alternative is wrong data.
Started OperationRing::flush(const void* data, size_t bytes, GroupMemory* memory) {
  keepGoing();
  if (state_ == State::broken) return {false, nullptr};
  Flush* flush = takeFlush();
  if (!flush) return refuse("starts a flush while 64 flushes are under way, which is the most");
  const auto& known = static_cast<const Memory&>(*memory);
  core::Posted posted{true, nullptr};
  if (onFirst() && known.first) posted = backend_->flush(data, bytes, *known.first);
  if (!posted.ok) {
    const Backend::Failure failure = backend_->flushFailure();
    failure.lost ? lose(failure.why) : breakDown(failure.why);
  }
  const bool through = posted.ok && onFirst() && known.first;
  if (!through && !known.host && state_ != State::broken)
    breakDown(why_ + "; what it brought into a GPU's memory can no longer be flushed");
  if (state_ == State::broken) return {false, nullptr};
  flush->request = posted.request;
  flush->host = known.host;
  flush->bytes = bytes;
  flush->enter(posted.request ? Flush::State::waiting : Flush::State::visible);
  return {true, flush};
}

Finished OperationRing::testFlush(Flush& flush) {
  if (flush.state == Flush::State::waiting) {
    if (state_ == State::broken || !flush.request) return {state_ != State::broken, false, 0};
    const core::Tested tested = core::test(flush.request, nullptr);
    if (!tested.ok) {
      const Backend::Failure failure = backend_->flushFailure();
      failure.lost ? lose(failure.why) : breakDown(failure.why);
    }
    if (!tested.ok || !tested.done) return {state_ != State::broken, false, 0};
  }
  flush.enter(Flush::State::free);
  return {true, true, flush.bytes};
}

// The group's end:

// Every data call begins with this: the work of the present state, and now and then a look at the other
// ranks.
void OperationRing::keepGoing() {
  switch (state_) {
    case State::running:
      break;
    case State::agreeing:
      agree();
      break;
    case State::onSpare:
      beginWaiting();
      break;
    case State::broken:
      if (backend_) backend_->bond().repeat();
      if (spare_) spare_->backend().bond().repeat();
      return;
  }
  if (passes_++ % kLookEvery == 0) (void)hear();
}

// The one place where the ring hears the others. False: their word broke the group, or the backend is lost.
bool OperationRing::hear() {
  if (state_ == State::broken) return false;
  Bond& bond = active_->bond();
  const Bond::State there = bond.look();
  if (there == Bond::State::alarmed) {
    const Alarm alarm = bond.alarm();
    if (alarm.treeLost)
      lose(alarm.reason);
    else
      breakDown(alarm.reason, false, &bond);
    return false;
  }
  return there == Bond::State::whole || !active_->needsEveryone() || hearAbsent(bond);
}

// A rank is gone, and no operation would ever fail by that. A rank that said goodbye has its results, so ours
// come soon. Results that do not come within kPartedGrace mean that the rank left too early.
bool OperationRing::hearAbsent(const Bond& bond) {
  if (bond.state() == Bond::State::broken) {
    breakDown(format("rank %d failed: %s", bond.rank(), bond.fault().c_str()));
    return false;
  }
  const TimePoint now = clock_.now();
  if (aloneSince_ == TimePoint{}) aloneSince_ = now;
  if (now - aloneSince_ < kPartedGrace) return true;
  breakDown(format("rank %d left the group", bond.rank()));
  return false;
}

// A step of the active backend failed. The words of another rank or a daemon are better than the error that
// was seen here, so hear() comes first; a goodbye changes the reason as well.
void OperationRing::fail() {
  if (!hear()) return;
  const Backend::Failure failure = active_->failure();
  failure.lost ? lose(failure.why) : breakDown(failure.why);
}

// The one place where a group breaks. `toldBy`: the bond whose end told the reason; where that is its only
// end it needs no alarm of ours. Others may not have heard it yet, and would see only that this rank is gone.
// The backends halt, so nothing is begun afterwards.
void OperationRing::breakDown(std::string why, bool lost, const Bond* toldBy) {
  if (state_ == State::broken) return;
  const bool first = onFirst();
  enter(State::broken);
  why_ = std::move(why);
  WEFT_LOG(error, "collective group of %d ranks: %s", place_.ranks, why_.c_str());
  const auto tell = [&](Backend& backend) {
    if (&backend.bond() != toldBy || toldBy->ends() > 1) backend.bond().say(Alarm{why_, lost});
    backend.halt();
  };
  if (first) tell(*backend_);
  if (spare_) tell(spare_->backend());
}

// From the backend to the spare:

bool OperationRing::mayBeginAgain(const Operation& operation) const {
  for (const GroupMemory* memory : {operation.sendMemory, operation.receiveMemory})
    if (memory && !static_cast<const Memory*>(memory)->spare) return false;
  return !reduces(operation) || operation.send != operation.receive;
}

// This rank's results, and whether the operations that it lacks can begin again. For that the vectors must
// lie in memory that the spare reaches, no result may have been written over a vector (in place), and no
// flush of a GPU's memory may be lost.
Spare::Claim OperationRing::claim() {
  Spare::Claim mine{after_, oldest_, true};
  for (uint64_t at = oldest_; at < next_; at++) {
    Slot& slot = slotOf(at);
    if (slot.state == Slot::State::free) continue;
    slot.enter(Slot::State::waiting);
    mine.canBeginAgain = mine.canBeginAgain && mayBeginAgain(slot.operation);
  }
  for (Flush& flush : flushes_) {
    if (flush.state != Flush::State::waiting) continue;
    flush.request = nullptr;
    if (flush.host) flush.enter(Flush::State::visible);
    mine.canBeginAgain = mine.canBeginAgain && flush.host;
  }
  return mine;
}

// The backend is given up. It closes on a thread of its own while the ranks agree. Nothing begins again
// before it has closed, as work that it still has under way must not land in a result.
void OperationRing::lose(const std::string& why) {
  if (state_ != State::running) return;
  if (!spare_) return breakDown(why, true);
  why_ = why;
  bytesBefore_ = backend_->bytesSent();
  backend_->bond().say(Alarm{why, true});
  backend_->halt();
  const Spare::Claim mine = claim();
  active_ = &spare_->backend();
  WEFT_LOG(warn, "%s: the ranks of the group ask each other whether they can go on without the tree",
           why_.c_str());
  enter(State::agreeing);
  waiting_ = oldest_;
  if (const Status asked = spare_->ask(mine); !asked) return breakDown(why_ + "; " + asked.error().message());
  agree();
}

// The lock is held for the moment of the exchange alone. A thread that registers memory just now has a share
// of the backend, which then ends with that call.
void OperationRing::handOver() {
  std::shared_ptr<Backend> lost;
  {
    const std::lock_guard lock(mutex_);
    lost.swap(backend_);
  }
  if (lost) spare_->closing().take(std::move(lost));
}

// A look at the agreement of the ranks; keepGoing() calls it until there is an answer.
void OperationRing::agree() {
  handOver();
  switch (spare_->hear()) {
    case Spare::Answer::waiting:
      return;
    case Spare::Answer::no:
      return breakDown(why_ + "; " + spare_->why());
    case Spare::Answer::failed:
      if (hear()) breakDown(why_ + "; " + spare_->backend().failure().why);
      return;
    case Spare::Answer::yes:
      break;
  }
  WEFT_LOG(warn, "the ranks go on without the tree, from operation %llu on",
           static_cast<unsigned long long>(spare_->from()));
  enter(State::onSpare);
  turns_ = Spare::kTurnsOfItsOwn;
  beginWaiting();
}

// Begins the waiting operations in their order, as far as the spare takes them now, and only after the lost
// backend has closed.
void OperationRing::beginWaiting() {
  handOver();
  if (waiting_ == next_ || backend_ || !spare_->closing().over()) return;
  for (; waiting_ < next_; waiting_++) {
    Slot& slot = slotOf(waiting_);
    if (slot.state == Slot::State::waiting && !begin(slot)) return;
  }
}

}  // namespace weft::coll
