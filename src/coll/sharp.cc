// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/sharp.h"

#include <algorithm>

#include "src/base/log.h"
#include "src/base/reserve.h"
#include "src/coll/kernels.h"
#include "src/coll/plan.h"

namespace weft::coll {

namespace {

constexpr uint64_t kLookEvery = 256;  // tests that find nothing

sharp::Buffer bufferOf(const void* data, size_t bytes, const GroupMemory* memory) {
  const auto* known = static_cast<const SharpMemory*>(memory);
  sharp::Buffer buffer{};
  buffer.memory = !known || known->host ? sharp::kHost : sharp::kCuda;
  buffer.address = const_cast<void*>(data);
  buffer.bytes = bytes;
  buffer.registration = known ? known->registration : nullptr;
  return buffer;
}

bool onHost(const GroupMemory* memory) {
  return !memory || static_cast<const SharpMemory*>(memory)->host;
}

// A scatter's and a gather's buffers are as long as NVIDIA's own plugin says they are.
sharp::Reduction reductionOf(const Operation& operation) {
  const bool scatters = operation.kind == OperationKind::reduceScatter;
  const size_t bytes = scatters ? operation.windowBytes : operation.bytes;
  sharp::Reduction spec{};
  spec.send = bufferOf(operation.send, bytes, operation.sendMemory);
  spec.receive =
      bufferOf(operation.receive, scatters ? operation.bytesPerRank : bytes, operation.receiveMemory);
  spec.type = *sharpType(operation.type);
  spec.operation = *sharpOperation(operation.op);
  spec.elements = bytes / elementBytes(operation.type);
  spec.offset = scatters ? operation.windowOffset : 0;
  return spec;
}

sharp::Gather gatherOf(const Operation& operation) {
  sharp::Gather spec{};
  spec.send = bufferOf(operation.send, operation.bytesPerRank, operation.sendMemory);
  spec.receive = bufferOf(operation.receive, operation.windowBytes, operation.receiveMemory);
  spec.type = sharp::kI8;
  spec.size = operation.windowBytes;
  spec.offset = operation.windowOffset;
  return spec;
}

size_t bytesOf(const Operation& operation) {
  return operation.kind == OperationKind::allReduce ? operation.bytes : operation.windowBytes;
}

}  // namespace

SharpGroup::SharpGroup(std::unique_ptr<SharpJob> job, std::unique_ptr<PeersGroup> peers)
    : peers_(std::move(peers)), job_(std::move(job)), mesh_(peers_->mesh()) {
  for (Slot& slot : slots_) slot.group = this;
}

SharpGroup::~SharpGroup() {
  const MustNotFail closing;
  for (const Slot& slot : slots_)
    if (slot.state == State::running) (void)job_->library().freeRequest(slot.request);
  for (const auto& memory : memories_.left()) release(*memory);
  job_.reset();
}

// Memory:

core::RecvComm* SharpGroup::flushingComm() const {
  for (int rank = 0; rank < mesh_.ranks(); rank++)
    if (const Pipe* pipe = mesh_.pipe(rank)) return &pipe->receiving();
  return nullptr;
}

Status SharpGroup::takeMemory(const MemoryDesc& desc, SharpMemory* memory) {
  const SharpLibrary& library = job_->library();
  int code = 0;
  if (desc.kind == MemoryKind::dmabuf) {
    if (!library.registerDmaBuf)
      return Error(Code::unavailable, "registering memory", "this libsharp_coll takes no dma-buf");
    using Options = sharp::RegistrationOptions;
    const Options options{Options::kFd | Options::kOffset, desc.fd, desc.fdOffset};
    code =
        library.registerDmaBuf(job_->context(), desc.address, desc.length, &options, &memory->registration);
  } else {
    code = library.registerMemory(job_->context(), desc.address, desc.length, &memory->registration);
  }
  if (code != 0)
    return Error(Code::unavailable, "registering memory", "libsharp_coll: " + library.words(code));
  if (memory->host) {
    TRY(memory->peers, peers_->registerMemory(desc));
  } else if (core::RecvComm* comm = flushingComm()) {
    TRY(memory->flushing, comm->registerMemory(desc));
  } else {
    return Error(
        Code::unavailable, "registering memory",
        "a group of one rank has no connection that could flush a GPU's memory; register host memory");
  }
  return {};
}

Result<GroupMemory*> SharpGroup::registerMemory(const MemoryDesc& desc) {
  auto memory = std::make_unique<SharpMemory>();
  memory->host = desc.kind == MemoryKind::host;
  if (Status taken = takeMemory(desc, memory.get()); !taken) {
    release(*memory);
    return taken.takeError();
  }
  return memories_.keep(std::move(memory));
}

void SharpGroup::release(const SharpMemory& memory) {
  if (memory.flushing) (void)flushingComm()->deregisterMemory(memory.flushing);
  if (memory.peers) (void)peers_->deregisterMemory(memory.peers);
  if (memory.registration) (void)job_->library().deregisterMemory(job_->context(), memory.registration);
}

Status SharpGroup::deregisterMemory(GroupMemory* memory) {
  TRY(const auto gone, memories_.take(memory));
  release(*gone);
  return {};
}

// Operations:

Error SharpGroup::error() const {
  if (broken_.empty()) return peers_->error();
  return Error(Code::remote, "collective group", broken_);
}

GroupCounters SharpGroup::counters() const {
  GroupCounters all = peers_->counters();
  all.operations += counters_.operations;
  all.bytesSent += counters_.bytesSent;
  return all;
}

SharpGroup::Slot* SharpGroup::freeSlot() {
  const auto found =
      std::find_if(slots_.begin(), slots_.end(), [](const Slot& one) { return one.state == State::free; });
  return found == slots_.end() ? nullptr : &*found;
}

Started SharpGroup::start(const Operation& operation) {
  if (!broken_.empty()) return {false, nullptr};
  if (const char* fault = faultOf(operation, mesh_.rank(), mesh_.ranks())) {
    breakDown(format("rank %d started an operation that cannot be: %s", mesh_.rank(), fault));
    return {false, nullptr};
  }
  if (!job_->does(operation)) return startElsewhere(operation);
  Slot* slot = freeSlot();
  if (!slot) return {};
  const int code = hand(operation, &slot->request);
  if (code == sharp::kLockFailed) return notNow();
  if (code != 0 || !slot->request) {
    breakDown(format("rank %d: libsharp_coll began no operation: %s", mesh_.rank(),
                     job_->library().words(code).c_str()));
    return {false, nullptr};
  }
  refusedSince_ = TimePoint{};
  slot->state = State::running;
  slot->bytes = bytesOf(operation);
  counters_.operations++;
  counters_.bytesSent += slot->bytes;
  return {true, slot};
}

int SharpGroup::hand(const Operation& operation, void** request) {
  const SharpLibrary& library = job_->library();
  *request = nullptr;
  if (operation.kind == OperationKind::allGather) {
    sharp::Gather spec = gatherOf(operation);
    return library.allGather(job_->comm(), &spec, request);
  }
  sharp::Reduction spec = reductionOf(operation);
  return operation.kind == OperationKind::allReduce ? library.allReduce(job_->comm(), &spec, request)
                                                    : library.reduceScatter(job_->comm(), &spec, request);
}

// Another job's operation has the tree to itself: NCCL calls again, for as long as forming a group may take.
Started SharpGroup::notNow() {
  const TimePoint now = mesh_.clock().now();
  if (refusedSince_ == TimePoint{}) refusedSince_ = now;
  if (now - refusedSince_ < mesh_.timeout()) return {};
  breakDown(format("rank %d: the switches' tree stays locked by another job", mesh_.rank()));
  return {false, nullptr};
}

Started SharpGroup::startElsewhere(Operation operation) {
  if (!onHost(operation.sendMemory) || !onHost(operation.receiveMemory)) {
    breakDown(format("rank %d: the switches do no %s of %s, and the ranks only reduce host memory",
                     mesh_.rank(), nameOf(operation.op), nameOf(operation.type)));
    return {false, nullptr};
  }
  const auto known = [](GroupMemory* memory) {
    return memory ? static_cast<SharpMemory*>(memory)->peers : nullptr;
  };
  operation.sendMemory = known(operation.sendMemory);
  operation.receiveMemory = known(operation.receiveMemory);
  return peers_->start(operation);
}

// A GPU's memory is flushed by a connection of the ranks, whatever card wrote to it. Host memory is visible
// as soon as it is written.
Started SharpGroup::flush(const void* data, size_t bytes, GroupMemory* memory) {
  if (!broken_.empty()) return {false, nullptr};
  Flush* flush = flushes_.take(memory, bytes);
  if (!flush) {
    breakDown(format("rank %d: %s", mesh_.rank(), FlushTable::kFull));
    return {false, nullptr};
  }
  const auto& known = static_cast<const SharpMemory&>(*memory);
  if (known.flushing) {
    const core::ReceiveSpec spec{const_cast<void*>(data), bytes, 0, known.flushing, nullptr};
    const core::Posted posted = flushingComm()->iflush(std::span(&spec, 1));
    if (!posted.ok) {
      breakDown(
          format("rank %d: flushing failed: %s", mesh_.rank(), flushingComm()->error().message().c_str()));
      return {false, nullptr};
    }
    flush->request = posted.request;
  }
  if (!flush->request) flush->state = Flush::State::visible;
  return {true, flush};
}

Finished SharpGroup::testFlush(Flush& flush) {
  if (flush.state == Flush::State::visible) return FlushTable::finish(flush);
  if (!broken_.empty()) return {false, false, 0};
  const core::Tested tested = core::test(flush.request, nullptr);
  if (!tested.ok)
    breakDown(
        format("rank %d: flushing failed: %s", mesh_.rank(), flushingComm()->error().message().c_str()));
  if (!tested.ok || !tested.done) return {tested.ok, false, 0};
  return FlushTable::finish(flush);
}

Finished SharpGroup::test(GroupRequest* request) {
  if (request->group != this) return request->group->test(request);  // the ranks do it
  if (Flush* flush = flushes_.find(request)) return testFlush(*flush);
  auto& slot = static_cast<Slot&>(*request);
  if (slot.state == State::running && job_->library().test(slot.request) != 0) {
    (void)job_->library().freeRequest(slot.request);
    slot.state = State::free;
    return {true, true, slot.bytes};
  }
  if (!broken_.empty()) mesh_.repeatAlarm();
  if (++passes_ % kLookEvery == 0 && broken_.empty()) (void)othersAreThere();
  return {broken_.empty(), false, 0};
}

// The library says nothing of an operation that never ends, so the group is broken by what the other ranks
// say or by a connection that fails. A rank that says goodbye has its results, so ours come soon; where they
// do not, it left too early.
bool SharpGroup::othersAreThere() {
  for (int rank = 0; rank < mesh_.ranks(); rank++) {
    Pipe* pipe = mesh_.pipe(rank);
    if (!pipe) continue;
    const Pipe::State there = pipe->look();
    if (there == Pipe::State::alarmed || there == Pipe::State::broken) {
      breakDown(there == Pipe::State::alarmed
                    ? pipe->alarm().reason
                    : format("rank %d failed: %s", rank, pipe->errorOf(pipe->receiving()).message().c_str()));
      return false;
    }
    if (there != Pipe::State::left) continue;
    const TimePoint now = mesh_.clock().now();
    if (aloneSince_ == TimePoint{}) aloneSince_ = now;
    if (now - aloneSince_ < Milliseconds(2000)) continue;
    breakDown(format("rank %d left the group", rank));
    return false;
  }
  return true;
}

void SharpGroup::breakDown(std::string reason) {
  broken_ = std::move(reason);
  WEFT_LOG(error, "collective group of %d ranks: %s", mesh_.ranks(), broken_.c_str());
  mesh_.raiseAlarm(broken_);
}

}  // namespace weft::coll
