// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/ofi/endpoint.h"

#include <array>

#include "providers/ofi/descriptors.h"
#include "providers/ofi/rma_message.h"
#include "src/base/log.h"
#include "src/base/reserve.h"

namespace weft::ofi {

OfiEndpoint::OfiEndpoint(OfiQueue& queue)
    : queue_(queue), fabric_(queue.sharedEndpoint()), known_(!queue.device().traits().targetMustKnow) {}

Result<std::unique_ptr<Endpoint>> OfiEndpoint::create(OfiQueue& queue) {
  auto endpoint = std::make_unique<OfiEndpoint>(queue);
  TRY(endpoint->start());
  return std::unique_ptr<Endpoint>(std::move(endpoint));
}

Status OfiEndpoint::start() {
  const Entered entered(queue_.gate());
  if (!fabric_) {
    const ClosedOnExec opened;
    TRY(own_, queue_.openFabricEndpoint());
    fabric_ = own_.get();
  }
  LaneAddress mine;
  TRY(mine.name, fabricName());
  ownName_ = mine.name;
  if (own_ && queue_.device().traits().networkCards) (void)protectListener(mine.name);
  const RemoteMemory doorstep = queue_.device().doorstep().remote();
  mine.doorstepBase = doorstep.base;
  mine.doorstepKey = doorstep.key;
  address_ = encode(mine);
  return {};
}

Result<Bytes> OfiEndpoint::fabricName() const {
  Bytes name(256);
  size_t length = name.size();
  const int code = fi_getname(&fabric_->fid, name.data(), &length);
  if (code != 0 || length == 0 || length > 224)
    return fabricError(*queue_.device().library(), "asking for an endpoint's address",
                       queue_.device().info().name, code ? code : -FI_EINVAL);
  name.resize(length);
  return name;
}

OfiEndpoint::~OfiEndpoint() {
  const MustNotFail closing;
  const Entered entered(queue_.gate());
  queue_.forget(this, std::move(own_));  // closes it, or keeps it until that is safe
  if (inBook_) queue_.book().remove(peer_.name, this);
}

Status OfiEndpoint::connect(std::span<const std::byte> peerAddress) {
  if (state_ != State::idle)
    return Error(Code::internal, "connecting a lane", "the lane was connected before");
  TRY(peer_, decodeLaneAddress(peerAddress));
  peerText_ = addressText(queue_.device().fabricInfo().addr_format, peer_.name.data(), peer_.name.size());
  {
    const Entered entered(queue_.gate());
    TRY(peerAddress_,
        queue_.book().insert(peer_.name, this, peerText_ + " over " + queue_.device().info().name));
  }
  inBook_ = true;
  state_ = State::connecting;
  deadline_ = Clock::system().now() + queue_.device().config().connectTimeout;
  queue_.tend(this);
  return {};
}

Result<RemoteMemory> OfiEndpoint::import(std::span<const std::byte> blob) {
  return decodeMemory(blob);
}

namespace {

void* descriptorOf(const Work& work) {
  return work.memory ? static_cast<const OfiMemory*>(work.memory)->descriptor() : nullptr;
}

// A write that asks for nothing special.
bool isPlain(const Work& work) {
  return work.op != Opcode::read && !work.delivered && work.length > 0;
}

}  // namespace

// The calls that take their arguments in registers.
inline ssize_t OfiEndpoint::issuePlain(const Work& work, Operation* operation) {
  void* descriptor = descriptorOf(work);
  const uint64_t to = work.remote.base + work.remoteOffset;
  if (work.op == Opcode::write)
    return fi_write(fabric_, work.local, work.length, descriptor, peerAddress_, to, work.remote.key,
                    operation);
  uint64_t data = work.imm;
  if (queue_.lengthInData()) data |= static_cast<uint64_t>(work.length) << 32;
  return fi_writedata(fabric_, work.local, work.length, descriptor, data, peerAddress_, to, work.remote.key,
                      operation);
}

inline bool OfiEndpoint::submit(const Work& work, uint64_t flags) {
  Operation* operation = queue_.operations().take();
  operation->lane = this;
  operation->context = work.context;
  operation->purpose = work.quiet ? Purpose::quiet : Purpose::work;
  const ssize_t code =
      flags == 0 && isPlain(work) ? issuePlain(work, operation) : issueSpecial(work, operation, flags);
  if (code != 0) [[unlikely]]
    return refused(work, operation, code);
  outstanding_++;
  return true;
}

size_t OfiEndpoint::post(std::span<const Work> works) {
  const TriedToEnter inside(queue_.gate());
  if (!inside || state_ != State::ready) return 0;
  if (works.size() != 1) return postBurst(works);
  return queue_.room() > 0 && submit(works[0], 0);
}

// Only hardware has a doorbell to save; on sockets the hint could leave a write waiting for its successor.
size_t OfiEndpoint::postBurst(std::span<const Work> works) {
  const uint64_t hint = own_ ? 0 : FI_MORE;
  const size_t count = std::min(works.size(), queue_.room());
  size_t taken = 0;
  while (taken < count && submit(works[taken], taken + 1 < count ? hint : 0)) taken++;
  return taken;
}

// Whether the Work counts as taken all the same.
bool OfiEndpoint::refused(const Work& work, Operation* operation, ssize_t code) {
  queue_.operations().give(operation);
  if (code != -FI_EAGAIN) {
    rejected(work, code);
    return true;
  }
  if (outstanding_ == 0 && queue_.device().traits().connections) broke("the connection was lost");
  return false;
}

// A write of no bytes still has to arrive somewhere: at the doorstep, so that it needs no memory of the
// caller.
ssize_t OfiEndpoint::issueSpecial(const Work& work, Operation* operation, uint64_t flags) {
  void* descriptor = descriptorOf(work);
  RmaMessage message({work.local, work.length},
                     {work.remote.base + work.remoteOffset, work.length, work.remote.key}, descriptor);
  if (work.op == Opcode::read) return fi_readmsg(fabric_, message.to(peerAddress_, operation), flags);
  if (work.delivered) flags |= deliveredFlag();
  uint64_t data = 0;
  if (work.op == Opcode::writeNotify) {
    flags |= FI_REMOTE_CQ_DATA;
    data = work.imm;
    if (queue_.lengthInData()) data |= static_cast<uint64_t>(work.length) << 32;
  }
  if (work.length > 0) [[likely]]
    return fi_writemsg(fabric_, message.to(peerAddress_, operation, data), flags);
  RmaMessage empty(doorstepSource(), doorstepTarget(), queue_.device().doorstep().descriptor());
  return fi_writemsg(fabric_, empty.to(peerAddress_, operation, data), flags);
}

// shm 1.17 never completes a write of no bytes and takes nothing behind it, so software providers send one.
iovec OfiEndpoint::doorstepSource() const {
  return {queue_.device().doorstepSource(), own_ ? size_t{1} : 0};
}

fi_rma_iov OfiEndpoint::doorstepTarget() const {
  return {peer_.doorstepBase, own_ ? size_t{1} : 0, peer_.doorstepKey};
}

// FI_DELIVERY_COMPLETE was seen to wait for the target's poll with net, tcp;ofi_rxm and shm; without it their
// writes complete when they are in a socket buffer or a queue, or with a bad key.
uint64_t OfiEndpoint::deliveredFlag() const {
  return queue_.device().traits().delivery == Delivery::selectable ? FI_DELIVERY_COMPLETE : 0;
}

// The provider would not even take it: the Work counts as taken, and as failed.
void OfiEndpoint::rejected(const Work& work, int64_t code) {
  Completion completion = about(CompletionKind::sent, static_cast<int>(-code));
  completion.context = work.context;
  state_ = State::dead;
  queue_.report(completion, named("posting to", queue_.device().library()->errorText(code)));
}

bool OfiEndpoint::finished(Purpose purpose, uint64_t context, int error, std::string_view why,
                           Completion* out) {
  outstanding_--;
  if (error != 0) [[unlikely]] {
    lost_ = true;
    if (state_ == State::ready) state_ = State::dead;
  }
  if (purpose == Purpose::doorstep) {
    doorstepFinished(error, std::string(why));
    return false;
  }
  if (purpose == Purpose::quiet && error == 0) return false;
  if (error == 0) [[likely]] {
    *out = Completion{};
    out->context = context;
    out->source = this;
    return true;
  }
  *out = about(CompletionKind::sent, error);
  out->context = context;
  queue_.explainNow(*out, named("writing to or reading from", std::string(why)));
  return true;
}

Completion OfiEndpoint::about(CompletionKind kind, int error) {
  Completion completion;
  completion.kind = kind;
  completion.ok = error == 0;
  completion.error = error;
  completion.source = this;
  return completion;
}

std::string OfiEndpoint::named(const char* what, const std::string& why) const {
  const DeviceInfo& info = queue_.device().info();
  return format("%s %s over %s %s: %s", what, peerText_.empty() ? "the peer" : peerText_.c_str(),
                info.provider.c_str(), info.name.c_str(), why.c_str());
}

void OfiEndpoint::broke(const std::string& why) {
  lost_ = true;
  if (state_ == State::connecting) return connectFailed(FI_EIO, why);
  if (state_ == State::ready)
    queue_.report(about(CompletionKind::broken, FI_ECONNRESET), named("lane to", why));
  if (state_ == State::ready || state_ == State::idle) state_ = State::dead;
}

}  // namespace weft::ofi
