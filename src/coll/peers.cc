// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/peers.h"

#include <algorithm>

#include "src/base/log.h"

// The ranks' own reduction: the order of the exchanges, and the memory on all comms.
namespace weft::coll {

PeersBackend::PeersBackend(std::unique_ptr<Mesh> mesh, const PeersOptions& options)
    : mesh_(std::move(mesh)), blocks_(*mesh_, options.pieceBytes, options.blocks) {
  for (size_t place = 0; place < kOperations; place++)
    exchanges_.push_back(
        std::make_unique<Exchange>(*mesh_, blocks_, options.oneStepBytes, static_cast<int>(place)));
  for (int rank = 0; rank < mesh_->ranks(); rank++) {
    Pipe* pipe = mesh_->pipe(rank);
    if (!pipe) continue;
    bond_.add(rank, *pipe);
    pipe->listen();
  }
}

// After a goodbye the other ranks do not take the end of our connections for a failure. Of a broken group it
// follows the alarm, or says to the rank that raised it that it was heard.
void PeersBackend::part() {
  if (hasParted_) return;
  hasParted_ = true;
  bond_.say(Alarm{});
  enter(State::parted);
}

// Data that this rank owes the others may still be on its way, and the others may still send into receives
// that this rank has posted. Where the group is broken they still have to hear why: a rank that hears
// first that our memory or our connection is gone would name this rank in place of the culprit. The wait is
// bounded, as a rank may never end.
void PeersBackend::close(const Clock& clock) {
  if (hasParted_) bond_.awaitGoodbyes(clock, Milliseconds(500));
}

void PeersBackend::keep(const std::shared_ptr<const void>& memory) {
  for (int rank = 0; rank < mesh_->ranks(); rank++)
    if (const Pipe* pipe = mesh_->pipe(rank)) pipe->keep(memory);
}

// Memory:

// Registers on both comms to every other rank, or on none.
Result<std::unique_ptr<GroupMemory>> PeersBackend::registerMemory(const MemoryDesc& desc) {
  if (desc.kind != MemoryKind::host)
    return Error(Code::unavailable, "registering memory",
                 "WEFT_COLLNET=peers reduces in host memory, and this is a GPU's");
  auto memory = std::make_unique<PeersMemory>();
  Status status;
  for (int rank = 0; rank < mesh_->ranks() && status; rank++) {
    const Pipe* pipe = mesh_->pipe(rank);
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
  if (status) return std::unique_ptr<GroupMemory>(std::move(memory));
  deregisterMemory(*memory);
  return status.takeError();
}

void PeersBackend::deregisterMemory(GroupMemory& memory) {
  auto& known = static_cast<PeersMemory&>(memory);
  for (size_t rank = 0; rank < known.sending.size(); rank++) {
    const Pipe* pipe = mesh_->pipe(static_cast<int>(rank));
    if (known.sending[rank]) (void)pipe->sending().deregisterMemory(known.sending[rank]);
    if (known.receiving[rank]) (void)pipe->receiving().deregisterMemory(known.receiving[rank]);
  }
}

// Operations:

Backend::Begun PeersBackend::begin(uint64_t turn, const Operation& operation) {
  exchangeOf(turn).begin(operation);
  next_ = turn + 1;
  pass();
  return state_ == State::moving ? Begun::begun : Begun::failed;
}

// A step of all running exchanges, in their order. An exchange posts only after all exchanges before it have
// posted all they can: the requests and blocks that they still lack must not go to a later one, or the ranks
// could wait for each other in a circle.
void PeersBackend::pass() {
  while (oldest_ < next_ && exchangeOf(oldest_).state() != Exchange::State::running) oldest_++;
  bool oldest = true, mayPost = true;
  for (uint64_t at = oldest_; at < next_ && state_ == State::moving; at++) {
    Exchange& exchange = exchangeOf(at);
    if (exchange.state() != Exchange::State::running) continue;
    const Exchange::Step step = exchange.progress(oldest, mayPost);
    oldest = false;
    mayPost = mayPost && !exchange.refused();
    if (step == Exchange::Step::going) continue;
    if (step == Exchange::Step::failed) {
      failed_ = &exchange;
      enter(State::failed);
      return;
    }
    bytesSent_ += exchange.bytesSent();
    exchange.enter(Exchange::State::done);
  }
}

Backend::Step PeersBackend::advance(uint64_t turn) {
  Exchange& exchange = exchangeOf(turn);
  if (exchange.state() == Exchange::State::running) pass();
  if (exchange.state() == Exchange::State::done) {
    exchange.enter(Exchange::State::free);
    return Step::done;
  }
  return state_ == State::failed ? Step::failed : Step::going;
}

// A culprit that said goodbye has left; the error of its connection would only say that it is closed.
Backend::Failure PeersBackend::failure() {
  const int culprit = failed_->culprit();
  const Pipe* pipe = mesh_->pipe(culprit);
  WEFT_LOG(info, "collective group: rank %d: %s", culprit, failed_->why().c_str());
  if (pipe && pipe->saidGoodbye()) return {format("rank %d left the group", culprit)};
  return {format("rank %d failed: %s", culprit, failed_->why().c_str())};
}

}  // namespace weft::coll
