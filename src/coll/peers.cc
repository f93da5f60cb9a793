// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/peers.h"

#include <algorithm>

#include "src/base/log.h"
#include "src/base/reserve.h"

namespace weft::coll {

PeersGroup::PeersGroup(std::unique_ptr<Mesh> mesh, const PeersOptions& options)
    : mesh_(std::move(mesh)), blocks_(*mesh_, options.pieceBytes, options.blocks) {
  for (int slot = 0; slot < kSlots; slot++) {
    slots_.push_back(std::make_unique<Exchange>(*mesh_, blocks_, options.oneStepBytes, slot));
    slots_.back()->group = this;
  }
  for (int rank = 0; rank < mesh_->ranks(); rank++)
    if (Pipe* pipe = mesh_->pipe(rank)) pipe->listen();
}

// Says goodbye first: what the others wait for from us is no failure then.
PeersGroup::~PeersGroup() {
  const MustNotFail closing;
  if (broken_.empty()) {
    mesh_->raiseAlarm("");
    mesh_->awaitGoodbyes(Milliseconds(500));
  }
  for (const auto& memory : memories_.left()) release(*memory);
}

Result<GroupMemory*> PeersGroup::registerMemory(const MemoryDesc& desc) {
  if (desc.kind != MemoryKind::host)
    return Error(Code::unavailable, "registering memory",
                 "WEFT_COLLNET=peers reduces in host memory, and this is a GPU's");
  auto memory = std::make_unique<PeersMemory>();
  Status status;
  for (int rank = 0; rank < mesh_->ranks() && status; rank++) {
    Pipe* pipe = mesh_->pipe(rank);
    memory->sending.push_back(nullptr);
    memory->receiving.push_back(nullptr);
    if (!pipe) continue;
    auto sending = pipe->sending().registerMemory(desc);
    auto receiving = pipe->receiving().registerMemory(desc);
    memory->sending.back() = sending ? *sending : nullptr;
    memory->receiving.back() = receiving ? *receiving : nullptr;
    if (!sending) status = sending.takeError();
    if (!receiving) status = receiving.takeError();
  }
  if (!status) {
    release(*memory);
    return status.takeError();
  }
  return memories_.keep(std::move(memory));
}

void PeersGroup::release(PeersMemory& memory) {
  for (size_t rank = 0; rank < memory.sending.size(); rank++) {
    Pipe* pipe = mesh_->pipe(static_cast<int>(rank));
    if (memory.sending[rank]) (void)pipe->sending().deregisterMemory(memory.sending[rank]);
    if (memory.receiving[rank]) (void)pipe->receiving().deregisterMemory(memory.receiving[rank]);
  }
}

Status PeersGroup::deregisterMemory(GroupMemory* memory) {
  TRY(const auto gone, memories_.take(memory));
  release(*gone);
  return {};
}

Error PeersGroup::error() const {
  return Error(Code::remote, "collective group", broken_.empty() ? "nothing is wrong" : broken_);
}

Started PeersGroup::start(const Operation& operation) {
  if (!broken_.empty()) return {false, nullptr};
  if (const char* fault = faultOf(operation, mesh_->rank(), mesh_->ranks())) {
    breakDown(format("rank %d started an operation that cannot be: %s", mesh_->rank(), fault), true);
    return {false, nullptr};
  }
  Exchange& slot = *slots_[next_ % kSlots];
  if (slot.state() != Exchange::State::free) {
    progress();
    return {broken_.empty(), nullptr};
  }
  slot.begin(operation);
  next_++;
  counters_.operations++;
  progress();
  return {broken_.empty(), broken_.empty() ? &slot : nullptr};
}

// Data is in host memory, where it is visible as soon as it is received.
Started PeersGroup::flush(const void*, size_t bytes, GroupMemory* memory) {
  if (!broken_.empty()) return {false, nullptr};
  Flush* flush = flushes_.take(memory, bytes);
  if (!flush) breakDown(format("rank %d: %s", mesh_->rank(), FlushTable::kFull), true);
  if (flush) flush->state = Flush::State::visible;
  return {flush != nullptr, flush};
}

void PeersGroup::progress() {
  if (!broken_.empty()) return mesh_->repeatAlarm();
  constexpr uint64_t kAlarmEvery = 256;
  if (passes_++ % kAlarmEvery == 0 && !hearAlarms()) return;
  bool oldest = true, mayPost = true;
  for (uint64_t at = oldest_; at < next_; at++) {
    Exchange& exchange = *slots_[at % kSlots];
    if (exchange.state() != Exchange::State::running) continue;
    const Exchange::Step step = exchange.progress(oldest, mayPost);
    oldest = false;
    mayPost = mayPost && !exchange.refused();
    if (step == Exchange::Step::going) continue;
    if (step == Exchange::Step::failed) {
      WEFT_LOG(info, "collective group: rank %d: %s", exchange.culprit(), exchange.why().c_str());
      if (hearAlarms()) breakDown(blame(exchange), true);
      return;
    }
    counters_.bytesSent += exchange.bytesSent();
    exchange.setState(Exchange::State::done);
  }
}

std::string PeersGroup::blame(const Exchange& exchange) const {
  const Pipe* pipe = mesh_->pipe(exchange.culprit());
  if (pipe && pipe->saidGoodbye()) return format("rank %d left the group", exchange.culprit());
  return format("rank %d failed: %s", exchange.culprit(), exchange.why().c_str());
}

// False: a rank has told why the group is broken, which is then our reason too. A goodbye is no alarm: the
// rank that says it has all of its results, and what it owes others may still be on its way to them. Nor is a
// connection that failed, as long as no operation needs it.
bool PeersGroup::hearAlarms() {
  for (int rank = 0; rank < mesh_->ranks(); rank++) {
    Pipe* pipe = mesh_->pipe(rank);
    if (!pipe || pipe->look() != Pipe::State::alarmed) continue;
    breakDown(pipe->alarm().reason, false);
    return false;
  }
  return true;
}

void PeersGroup::breakDown(std::string reason, bool tell) {
  broken_ = std::move(reason);
  WEFT_LOG(error, "collective group of %d ranks: %s", mesh_->ranks(), broken_.c_str());
  if (tell) mesh_->raiseAlarm(broken_);
}

Finished PeersGroup::test(GroupRequest* request) {
  if (Flush* flush = flushes_.find(request)) return FlushTable::finish(*flush);
  auto& exchange = static_cast<Exchange&>(*request);
  if (exchange.state() == Exchange::State::running) progress();
  if (exchange.state() == Exchange::State::done) {
    const size_t bytes = exchange.bytesReceived();
    exchange.setState(Exchange::State::free);
    while (oldest_ < next_ && slots_[oldest_ % kSlots]->state() == Exchange::State::free) oldest_++;
    return {true, true, bytes};
  }
  return {broken_.empty(), false, 0};
}

}  // namespace weft::coll
