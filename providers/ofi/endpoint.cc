// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/ofi/endpoint.h"

#include "providers/ofi/descriptors.h"
#include "providers/ofi/rma_message.h"
#include "src/base/log.h"
#include "src/base/reserve.h"

namespace weft::ofi {

namespace {

// A piece this large is worth a turn; smaller ones, notifications and lines among them, all go over the first
// stream and wait for nothing but each other.
constexpr uint64_t kWorthATurn = 32 << 10;

constexpr Milliseconds kPatience{100};  // with an end that is to dial

// So many writes at most are injected in a row. The next one is an operation: libfabric would keep any number
// of copies for a connection that is full, and where one is in flight a full one is told from a lost one.
constexpr uint32_t kInjectedInARow = 15;

}  // namespace

OfiEndpoint::OfiEndpoint(OfiQueue& queue)
    : queue_(queue),
      wantsDescriptors_(!queue.device().traits().software),
      known_(!queue.device().traits().targetMustKnow) {
  if (queue.device().traits().injects) injectRoom_ = queue.device().fabricInfo().tx_attr->inject_size;
}

Result<std::unique_ptr<Endpoint>> OfiEndpoint::create(OfiQueue& queue) {
  auto endpoint = std::make_unique<OfiEndpoint>(queue);
  TRY(endpoint->start());
  return std::unique_ptr<Endpoint>(std::move(endpoint));
}

Status OfiEndpoint::start() {
  const Entered entered(queue_.gate());
  TRY(openStreams());
  for (const Stream& stream : streams()) {
    TRY(auto name, fabricName(stream.endpoint));
    mine_.names.push_back(std::move(name));
  }
  if (software() && queue_.device().traits().networkCards) (void)protectListeners(mine_.names);
  const RemoteMemory hello = queue_.device().helloMemory().remote();
  mine_.helloBase = hello.base;
  mine_.helloKey = hello.key;
  address_ = encode(mine_);
  return {};
}

size_t OfiEndpoint::streamsWanted() const {
  if (!queue_.device().traits().severalStreams) return 1;
  return std::min(static_cast<size_t>(queue_.device().config().tcpStreams), LaneAddress::kMostNames);
}

Status OfiEndpoint::openStreams() {
  streams_[0].endpoint = queue_.sharedEndpoint();
  if (!software()) return {};
  const ClosedOnExec opened;
  count_ = streamsWanted();
  for (Stream& stream : streams()) {
    TRY(stream.own, queue_.openFabricEndpoint());
    stream.endpoint = stream.own.get();
  }
  return {};
}

Result<Bytes> OfiEndpoint::fabricName(fid_ep* endpoint) const {
  Bytes name(256);
  size_t length = name.size();
  const int code = fi_getname(&endpoint->fid, name.data(), &length);
  if (code != 0 || length == 0 || length > 224)
    return fabricError(*queue_.device().library(), "asking for an endpoint's address",
                       queue_.device().info().name, code ? code : -FI_EINVAL);
  name.resize(length);
  return name;
}

OfiEndpoint::~OfiEndpoint() {
  const MustNotFail closing;
  const Entered entered(queue_.gate());
  if (streams_[0].own) queue_.turnStrangersAway(mine_.names);
  queue_.forget(this, std::move(streams_[0].own));  // closes it, or keeps it until that is safe
  for (size_t i = 0; i < streams_.size(); i++) {
    streams_[i].own.reset();
    if (streams_[i].inBook && !queue_.endpointClosing()) queue_.book().remove(peer_.names[i], this);
  }
}

// Of two ends the one with fewer streams decides; what the other has more is not used.
Status OfiEndpoint::connect(std::span<const std::byte> peerAddress) {
  if (state_ != State::idle)
    return Error(Code::internal, "connecting a lane", "the lane was connected before");
  TRY(peer_, decodeLaneAddress(peerAddress));
  const Bytes& name = peer_.names.front();
  peerText_ = addressText(queue_.device().fabricInfo().addr_format, name.data(), name.size());
  count_ = std::min(count_, peer_.names.size());
  {
    const Entered entered(queue_.gate());
    for (size_t i = 0; i < count_; i++) {
      TRY(streams_[i].to,
          queue_.book().insert(peer_.names[i], this, peerText_ + " over " + queue_.device().info().name));
      streams_[i].inBook = true;
      streams_[i].mayDial = !queue_.device().traits().oneDials || mine_.names[i] <= peer_.names[i];
    }
  }
  state_ = State::connecting;
  const TimePoint now = Clock::system().now();
  deadline_ = now + queue_.device().config().connectTimeout;
  dialAnyway_ = now + kPatience;
  queue_.progress(this);
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

inline Stream& OfiEndpoint::streamFor(const Work& work) {
  if (count_ == 1 || work.length < kWorthATurn) [[likely]]
    return streams_[0];
  turn_ = turn_ + 1 < count_ ? turn_ + 1 : 0;
  return streams_[turn_];
}

// What a notification carries.
inline uint64_t OfiEndpoint::noticeOf(const Work& work) const {
  return queue_.lengthInData() ? work.imm | static_cast<uint64_t>(work.length) << 32 : work.imm;
}

// The calls that take their arguments in registers.
inline ssize_t OfiEndpoint::issuePlain(const Work& work, Operation* operation) {
  const Stream& stream = *operation->stream;
  void* descriptor = descriptorOf(work);
  const uint64_t to = work.remote.base + work.remoteOffset;
  if (work.op == Opcode::write)
    return fi_write(stream.endpoint, work.local, work.length, descriptor, stream.to, to, work.remote.key,
                    operation);
  return fi_writedata(stream.endpoint, work.local, work.length, descriptor, noticeOf(work), stream.to, to,
                      work.remote.key, operation);
}

inline bool OfiEndpoint::submit(const Work& work) {
  Stream& stream = streamFor(work);
  if (wantsDescriptors_ && work.length > 0 && !descriptorOf(work)) [[unlikely]]
    return refused(work, stream, -FI_EINVAL);
  Operation* operation = queue_.operations().take();
  operation->lane = this;
  operation->stream = &stream;
  operation->context = work.context;
  operation->purpose = work.unsignaled ? Purpose::unsignaled : Purpose::work;
  const ssize_t code = isPlain(work) ? issuePlain(work, operation) : issueSpecial(work, operation);
  if (code != 0) [[unlikely]] {
    queue_.operations().give(operation);
    return refused(work, stream, code);
  }
  stream.outstanding++;
  return true;
}

// Small ones all go over the first stream.
inline bool OfiEndpoint::mayInject(const Work& work) {
  if (!work.unsignaled || work.length > injectRoom_ || !isPlain(work)) return false;
  if (injected_++ < kInjectedInARow) [[likely]]
    return true;
  injected_ = 0;
  return false;
}

inline bool OfiEndpoint::inject(const Work& work) {
  Stream& stream = streams_[0];
  const uint64_t to = work.remote.base + work.remoteOffset;
  const ssize_t code =
      work.op == Opcode::write
          ? fi_inject_write(stream.endpoint, work.local, work.length, stream.to, to, work.remote.key)
          : fi_inject_writedata(stream.endpoint, work.local, work.length, noticeOf(work), stream.to, to,
                                work.remote.key);
  return code == 0 || refused(work, stream, code);
}

size_t OfiEndpoint::post(std::span<const Work> works) {
  const TriedToEnter inside(queue_.gate());
  if (!inside || state_ != State::ready) return 0;
  if (works.size() != 1) return postBurst(works);
  return mayInject(works[0]) ? inject(works[0]) : postOne(works[0]);
}

// Each rings the doorbell: what EFA is told to keep for the next one (FI_MORE) it takes, and drops without a
// word when the card has no room for that one.
size_t OfiEndpoint::postBurst(std::span<const Work> works) {
  const size_t count = std::min(works.size(), queue_.room());
  size_t taken = 0;
  while (taken < count && submit(works[taken])) taken++;
  return taken;
}

// Whether the Work counts as taken all the same.
bool OfiEndpoint::refused(const Work& work, Stream& stream, ssize_t code) {
  if (code != -FI_EAGAIN) {
    rejected(work, code);
    return true;
  }
  if (stream.outstanding > 0 || !queue_.device().traits().connections) return false;
  stream.fenced = true;
  died("the connection was lost");
  return false;
}

// A write of no bytes still has to arrive somewhere: at the hello, so that it needs no memory of the
// caller.
ssize_t OfiEndpoint::issueSpecial(const Work& work, Operation* operation) {
  const Stream& stream = *operation->stream;
  void* descriptor = descriptorOf(work);
  RmaMessage message({work.local, work.length},
                     {work.remote.base + work.remoteOffset, work.length, work.remote.key}, descriptor);
  if (work.op == Opcode::read) return fi_readmsg(stream.endpoint, message.to(stream.to, operation), 0);
  uint64_t flags = work.delivered ? deliveredFlag() : 0;
  uint64_t data = 0;
  if (work.op == Opcode::writeNotify) {
    flags |= FI_REMOTE_CQ_DATA;
    data = noticeOf(work);
  }
  if (work.length > 0) [[likely]]
    return fi_writemsg(stream.endpoint, message.to(stream.to, operation, data), flags);
  RmaMessage empty(helloSource(), helloTarget(), queue_.device().helloMemory().descriptor());
  return fi_writemsg(stream.endpoint, empty.to(stream.to, operation, data), flags);
}

// shm 1.17 never completes a write of no bytes and takes nothing behind it, so software providers send one.
iovec OfiEndpoint::helloSource() const {
  return {queue_.device().helloSource(), software() ? size_t{1} : 0};
}

fi_rma_iov OfiEndpoint::helloTarget() const {
  return {peer_.helloBase, software() ? size_t{1} : 0, peer_.helloKey};
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

bool OfiEndpoint::finished(const Operation& operation, int error, std::string_view why, Completion* out) {
  operation.stream->outstanding--;
  if (error != 0) [[unlikely]] {
    if (state_ != State::closing) operation.stream->fenced = true;
    if (state_ == State::ready) state_ = State::dead;
  }
  if (operation.purpose == Purpose::hello) {
    helloFinished(operation.stream, error, std::string(why));
    return false;
  }
  if (operation.purpose == Purpose::unsignaled && error == 0) return false;
  if (error == 0) [[likely]] {
    *out = Completion{};
    out->context = operation.context;
    out->source = this;
    return true;
  }
  *out = about(CompletionKind::sent, error);
  out->context = operation.context;
  queue_.explainNow(*out, named("writing to or reading from", std::string(why)));
  return true;
}

std::string OfiEndpoint::named(const char* what, const std::string& why) const {
  const DeviceInfo& info = queue_.device().info();
  return format("%s %s over %s %s: %s", what, peerText_.empty() ? "the peer" : peerText_.c_str(),
                info.provider.c_str(), info.name.c_str(), why.c_str());
}

void OfiEndpoint::broke(const std::string& why) {
  for (Stream& stream : streams()) stream.fenced = true;
  died(why);
}

void OfiEndpoint::died(const std::string& why) {
  if (state_ == State::connecting || state_ == State::idle) return connectFailed(FI_EIO, why);
  if (state_ == State::ready)
    queue_.report(about(CompletionKind::broken, FI_ECONNRESET), named("lane to", why));
  if (state_ == State::ready) state_ = State::dead;
}

}  // namespace weft::ofi
