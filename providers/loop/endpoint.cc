// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/loop/endpoint.h"

#include <cerrno>
#include <cstring>
#include <unistd.h>

#include "providers/loop/compat.h"
#include "src/base/bytes.h"
#include "src/base/log.h"

namespace weft::loop {

namespace {

constexpr Nanoseconds kLong = std::chrono::hours(24 * 365);  // a test says when connecting ends
constexpr uint32_t kAddressMagic = 0x61706c77;               // "wlpa"

std::shared_ptr<Port> makePort(LoopQueue& queue) {
  auto port = std::make_shared<Port>();
  port->id = queue.device().fabric().nextId();
  port->regions = queue.device().regions();
  port->inbox = queue.inbox();
  port->card = queue.device().card();
  queue.device().fabric().publish(port);
  return port;
}

}  // namespace

LoopEndpoint::LoopEndpoint(LoopQueue& queue)
    : queue_(queue),
      port_(makePort(queue)),
      life_(*this, Clock::system(), {.connect = kLong, .close = kLong}) {
  ByteWriter writer;
  writer.put(kAddressMagic).put(port_->id).put(static_cast<uint32_t>(::getpid()));
  std::memcpy(address_.data(), writer.bytes().data(), address_.size());
}

LoopEndpoint::~LoopEndpoint() {
  port_->alive.store(false, std::memory_order_release);
  queue_.device().fabric().withdraw(port_->id);
  queue_.detach(*this);
  if (!peer_ || !queue_.device().options().announceClose) return;
  Arrival goodbye;
  goodbye.kind = Arrival::Kind::closed;
  goodbye.target = peer_->id;
  if (peer_->card) goodbye.due = peer_->card->now() + peer_->card->latency();
  peer_->inbox->push(std::move(goodbye));  // a full inbox has worse problems
  if (peer_->card) peer_->card->tell(peer_->card->now() + peer_->card->latency());
}

Status LoopEndpoint::connect(std::span<const std::byte> peerAddress) {
  ByteReader reader(peerAddress);
  const auto magic = reader.get<uint32_t>();
  const auto id = reader.get<uint64_t>();
  const auto process = reader.get<uint32_t>();
  if (magic != kAddressMagic || !reader.done())
    return Error(Code::invalidArgument, "connecting a loop lane", "the address is not one of a loop lane");
  if (process != static_cast<uint32_t>(::getpid()))
    return Error(
        Code::config, "connecting a loop lane",
        "WEFT_PROVIDER=loop stays inside one process, and the peer is another one; use tcp or ofi:shm");
  TRY(life_.mayConnect());
  life_.apply(LaneEvent::connect);
  peer_ = queue_.device().fabric().find(id);
  const uint64_t other = peer_ ? peer_->peer.load(std::memory_order_acquire) : 0;
  if (!peer_ || (other != 0 && other != port_->id)) {
    peer_.reset();
    finishConnecting(ECONNREFUSED);
    return {};
  }
  port_->peer.store(id, std::memory_order_release);
  finishIfKnown();
  return {};
}

// A protocol that says too early that the peer has our address finds out here, as a card would tell it.
void LoopEndpoint::finishIfKnown() {
  if (life_.state() != LaneState::connecting) return;
  if (!queue_.device().options().targetMustKnow) return finishConnecting(0);
  if (known_) finishConnecting(peer_->peer.load(std::memory_order_acquire) == port_->id ? 0 : EHOSTUNREACH);
}

void LoopEndpoint::peerConnected() {
  known_ = true;
  finishIfKnown();
}

void LoopEndpoint::finishConnecting(int error) {
  if (error == 0)
    life_.apply(LaneEvent::stands);
  else
    life_.apply(LaneEvent::refused, error, "the peer's lane is not there");
}

Result<RemoteMemory> LoopEndpoint::import(std::span<const std::byte> blob) {
  return readBlob(blob);
}

size_t LoopEndpoint::post(std::span<const Work> works) {
  if (!life_.ready() && life_.state() != LaneState::dead) return 0;
  size_t n = 0;
  while (n < works.size() && queue_.hasRoom() && take(works[n])) n++;
  queue_.device().stats().works.fetch_add(n, std::memory_order_relaxed);
  return n;
}

// False: not now.
bool LoopEndpoint::take(const Work& work) {
  const int error = life_.ready() ? check(work) : ECANCELED;
  if (error) {
    fail(work, error);
    return true;
  }
  const bool notify = work.op == Opcode::writeNotify || work.op == Opcode::message;
  if (notify && !peer_->inbox->reserveNotification()) {
    queue_.device().stats().overruns.fetch_add(1, std::memory_order_relaxed);
    fail(work, ENOBUFS);
    return true;
  }
  if (!queue_.device().options().deferred() && work.op != Opcode::message) return landNow(work);
  const bool taken = queue_.dispatch(*this, work, *peer_);
  if (!taken && notify) peer_->inbox->releaseNotification();
  return taken;
}

int LoopEndpoint::check(const Work& work) const {
  if (work.length > queue_.device().info().maxWriteBytes) return EMSGSIZE;
  if (work.length > 0 && (!work.memory || !work.local)) return EINVAL;
  if (work.op == Opcode::message && !queue_.device().info().messages) return EINVAL;
  if (!peer_->alive.load(std::memory_order_acquire)) return ECONNRESET;
  const uint64_t other = peer_->peer.load(std::memory_order_acquire);
  return other == 0 || other == port_->id ? 0 : ECONNREFUSED;  // its lane is to another peer
}

bool LoopEndpoint::landNow(const Work& work) {
  const int error = copyNow(work);
  RailStats& stats = queue_.device().stats();
  if (work.op == Opcode::writeNotify) {
    Arrival arrival;
    arrival.notify = true;
    arrival.data = work.imm | uint64_t{work.length} << 32;
    arrival.target = peer_->id;
    if (error || !peer_->inbox->push(std::move(arrival))) peer_->inbox->releaseNotification();
  }
  if (error) {
    fail(work, error);
    return true;
  }
  stats.bytes.fetch_add(work.length, std::memory_order_relaxed);
  if (!work.unsignaled)
    queue_.complete({.kind = CompletionKind::sent, .context = work.context, .source = this});
  return true;
}

int LoopEndpoint::copyNow(const Work& work) {
  if (work.length == 0) return 0;
  const auto remote = peer_->regions->use(work.remote.key);
  std::byte* there = remote.at(work.remoteOffset, work.length);
  if (!there) return EACCES;
  const auto* memory = static_cast<const LoopMemory*>(work.memory);
  const auto local = queue_.device().regions()->use(memory->key());
  std::byte* here = local.at(memory->offsetOf(work.local), work.length);
  if (!here) return EFAULT;
  if (work.op == Opcode::read) std::swap(here, there);
  copyUnseen(there, here, work.length);
  return 0;
}

void LoopEndpoint::fail(const Work& work, int error) {
  queue_.device().stats().errors.fetch_add(1, std::memory_order_relaxed);
  Completion failed{.kind = CompletionKind::sent, .ok = false, .source = this};
  failed.error = error;
  failed.context = work.context;
  queue_.complete(failed);
  workFailed();
}

// A lane that is not connected yet finds out by connecting.
void LoopEndpoint::broke(int error) {
  if (life_.state() != LaneState::idle) life_.apply(LaneEvent::broke, error, "the peer closed its lane");
}

void LoopEndpoint::retire() {
  life_.apply(LaneEvent::retire);
}

// The works say that they were cancelled; what broke the lane is said beside them.
size_t LoopEndpoint::dropOutstanding(LaneState, int, const std::string&) {
  queue_.cancel(*this, ECANCELED);
  return 0;
}

void LoopEndpoint::startFence(LaneState) {
  life_.apply(LaneEvent::fenced);
}

void LoopEndpoint::endFence(bool) {
  queue_.cancel(*this, ECANCELED);
}

void LoopEndpoint::report(const Completion& completion, const std::string&) {
  queue_.complete(completion);
}

std::string LoopEndpoint::named(const char* what, const std::string& why) const {
  return format("%s %s: %s", what, queue_.device().info().name.c_str(), why.c_str());
}

}  // namespace weft::loop
