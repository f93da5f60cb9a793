// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/sharp.h"

#include <algorithm>

#include "src/base/log.h"
#include "src/base/reserve.h"
#include "src/coll/kernels.h"
#include "src/coll/plan.h"

// Operations in the switches, and the choice of those that go among the ranks.
namespace weft::coll {

namespace {

// The description of a buffer for the library. A null registration: no bytes are touched.
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

// The lengths of a scatter's and a gather's buffers are those that NVIDIA's own plugin passes.
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

}  // namespace

SharpBackend::SharpBackend(std::unique_ptr<SharpJob> job, std::unique_ptr<PeersBackend> peers)
    : peers_(std::move(peers)), job_(std::move(job)), mesh_(peers_->mesh()) {}

// Where disconnect() was not called the job ends without the other ranks.
SharpBackend::~SharpBackend() {
  freeRequests();
  job_.reset();
}

void SharpBackend::freeRequests() {
  for (Place& place : places_) {
    if (place.state == Place::State::inSwitches) (void)job_->library().freeRequest(place.request);
    place.enter(Place::State::free);
  }
}

// Requests of unfinished operations are freed first, then the library's communicator ends: nothing is written
// to registered memory any more, which is deregistered next, in the job that is still there.
void SharpBackend::stop() {
  freeRequests();
  job_->closeComm();
}

// The connections of the peers go last, as the library's processes end together over them.
void SharpBackend::disconnect() {
  job_->close();
  peers_->disconnect();
}

// Memory:

core::RecvComm* SharpBackend::flushingComm() const {
  for (int rank = 0; rank < mesh_.ranks(); rank++)
    if (const Pipe* pipe = mesh_.pipe(rank)) return &pipe->receiving();
  return nullptr;
}

Status SharpBackend::takeMemory(const MemoryDesc& desc, SharpMemory* memory) {
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

Result<std::unique_ptr<GroupMemory>> SharpBackend::registerMemory(const MemoryDesc& desc) {
  auto memory = std::make_unique<SharpMemory>();
  memory->host = desc.kind == MemoryKind::host;
  if (Status taken = takeMemory(desc, memory.get()); !taken) {
    deregisterMemory(*memory);
    return taken.takeError();
  }
  return std::unique_ptr<GroupMemory>(std::move(memory));
}

void SharpBackend::deregisterMemory(GroupMemory& memory) {
  const auto& known = static_cast<SharpMemory&>(memory);
  if (known.flushing) (void)flushingComm()->deregisterMemory(known.flushing);
  if (known.peers) peers_->deregisterMemory(*known.peers);
  if (known.registration) (void)job_->library().deregisterMemory(job_->context(), known.registration);
}

// Operations:

Backend::Begun SharpBackend::giveUp(std::string why) {
  failure_ = std::move(why);
  return Begun::failed;
}

Backend::Begun SharpBackend::begin(uint64_t turn, const Operation& operation) {
  Place& place = places_[turn % kOperations];
  if (!job_->does(operation)) return beginAmongRanks(place, operation);
  const int code = hand(operation, &place.request);
  if (code == sharp::kLockFailed) return notNow();
  if (code != 0 || !place.request)
    return giveUp(format("rank %d: libsharp_coll began no operation: %s", mesh_.rank(),
                         job_->library().words(code).c_str()));
  refusedSince_ = TimePoint{};
  place.enter(Place::State::inSwitches);
  bytesSent_ += vectorBytes(operation);
  return Begun::begun;
}

Backend::Begun SharpBackend::beginAmongRanks(Place& place, Operation operation) {
  if (!onHost(operation.sendMemory) || !onHost(operation.receiveMemory))
    return giveUp(format("rank %d: the switches do no %s of %s, and the ranks only reduce host memory",
                         mesh_.rank(), nameOf(operation.op), nameOf(operation.type)));
  const auto known = [](GroupMemory* memory) {
    return memory ? static_cast<SharpMemory*>(memory)->peers.get() : nullptr;
  };
  operation.sendMemory = known(operation.sendMemory);
  operation.receiveMemory = known(operation.receiveMemory);
  const Begun begun = peers_->begin(peersTurns_, operation);
  if (begun != Begun::begun) return begun;
  place.turn = peersTurns_++;
  place.enter(Place::State::amongRanks);
  return begun;
}

Backend::Step SharpBackend::advance(uint64_t turn) {
  Place& place = places_[turn % kOperations];
  Step step = Step::going;
  if (place.state == Place::State::amongRanks) step = peers_->advance(place.turn);
  // A test that is not 0 frees nothing: the request is freed here.
  if (place.state == Place::State::inSwitches && job_->library().test(place.request) != 0) {
    (void)job_->library().freeRequest(place.request);
    step = Step::done;
  }
  if (step == Step::done) place.enter(Place::State::free);
  return step;
}

int SharpBackend::hand(const Operation& operation, void** request) {
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

// Another job's operation has the tree to itself. NCCL calls again; the limit is the time that forming a
// group may take.
Backend::Begun SharpBackend::notNow() {
  const TimePoint now = mesh_.clock().now();
  if (refusedSince_ == TimePoint{}) refusedSince_ = now;
  if (now - refusedSince_ < mesh_.timeout()) return Begun::notNow;
  return giveUp(format("rank %d: the switches' tree stays locked by another job", mesh_.rank()));
}

// A connection of the ranks flushes a GPU's memory, whichever card wrote to it. Host memory is visible as
// soon as it is written.
core::Posted SharpBackend::flush(const void* data, size_t bytes, GroupMemory& memory) {
  const auto& known = static_cast<const SharpMemory&>(memory);
  if (!known.flushing) return {true, nullptr};
  const core::ReceiveSpec spec{const_cast<void*>(data), bytes, 0, known.flushing, nullptr};
  return flushingComm()->iflush(std::span(&spec, 1));
}

std::string SharpBackend::flushFailure() {
  return format("rank %d: flushing failed: %s", mesh_.rank(), flushingComm()->error().message().c_str());
}

}  // namespace weft::coll
