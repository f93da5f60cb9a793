// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/ofi/endpoint.h"

#include <algorithm>

#include "providers/ofi/descriptors.h"
#include "providers/ofi/rma_message.h"
#include "src/base/log.h"
#include "src/base/reserve.h"

// A lane's posting and completions; its connecting, fencing and closing are in the second half.
namespace weft::ofi {

namespace {

// A piece of this size is worth a turn. Smaller pieces, notifications and CTS records among them, all go over
// the first stream, and so wait only for each other.
constexpr uint64_t kWorthATurn = 32 << 10;

// A card gives a work up while packets of it are still on their way, each by a path of its own (SRD), and the
// peer's queue pair is shared and goes on. No switch holds a packet for this long.
constexpr Milliseconds kStrayPackets{250};

constexpr Milliseconds kPatience{100};  // the wait for an end that should dial

// The most writes injected in a row. The next write is an operation. libfabric would keep any number of
// copies for a connection that is full, and only an operation in flight tells a full connection from a lost
// one.
constexpr uint32_t kInjectedInARow = 15;

constexpr const char* kCut = "a lane on the same card had to be cut";
// Positive: all operations are in flight, which says nothing about the stream.
constexpr int64_t kNoneFree = 1;

LaneLife::Terms termsOf(const Config& config) {
  return {
      .connect = config.connectTimeout,
      .close = config.closeTimeout,
      .notFenced = "the peer did not acknowledge; what is in its socket may land until it closes its end"};
}

}  // namespace

OfiEndpoint::OfiEndpoint(OfiQueue& queue)
    : queue_(queue),
      wantsDescriptors_(!queue.device().traits().software),
      life_(*this, queue.device().clock(), termsOf(queue.device().config())),
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
  constexpr size_t kUnlessSet = 4;
  const auto set = static_cast<size_t>(queue_.device().config().tcpStreams);
  return std::min(set > 0 ? set : kUnlessSet, LaneAddress::kMostNames);
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

// The end with fewer streams decides. The other end's further streams are not used.
Status OfiEndpoint::connect(std::span<const std::byte> peerAddress) {
  TRY(life_.mayConnect());
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
  life_.apply(LaneEvent::connect);
  dialAnyway_ = queue_.device().clock().now() + kPatience;
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

// A write without delivery guarantee and without special flags.
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

// The data of a notification: the immediate, and the length where there is room.
inline uint64_t OfiEndpoint::noticeOf(const Work& work) const {
  return queue_.lengthInData() ? work.imm | static_cast<uint64_t>(work.length) << 32 : work.imm;
}

// Uses the calls that take their arguments in registers.
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

// Injected writes are small, and small works all go over the first stream.
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
  if (!inside || !life_.ready()) return 0;
  if (works.size() != 1) return postBurst(works);
  return mayInject(works[0]) ? inject(works[0]) : postOne(works[0]);
}

// Each work rings the doorbell. EFA takes a work that it is told to keep for the next one (FI_MORE), and
// drops it without a word when the card has no room for the next one.
size_t OfiEndpoint::postBurst(std::span<const Work> works) {
  const size_t count = std::min(works.size(), queue_.room());
  size_t taken = 0;
  while (taken < count && submit(works[taken])) taken++;
  return taken;
}

// True: the Work counts as taken all the same.
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

// A write of no bytes still has to arrive somewhere. It goes to the hello target, so it needs no memory of
// the caller's.
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

// shm 1.17 never completes a write of no bytes and takes nothing behind it, so software providers send one
// byte.
iovec OfiEndpoint::helloSource() const {
  return {queue_.device().helloSource(), software() ? size_t{1} : 0};
}

fi_rma_iov OfiEndpoint::helloTarget() const {
  return {peer_.helloBase, software() ? size_t{1} : 0, peer_.helloKey};
}

// With net, tcp;ofi_rxm and shm, FI_DELIVERY_COMPLETE waits for the target's poll. Without it, their writes
// complete when they are in a socket buffer or queue, also with a bad key.
uint64_t OfiEndpoint::deliveredFlag() const {
  return queue_.device().traits().delivery == Delivery::selectable ? FI_DELIVERY_COMPLETE : 0;
}

// The provider refused the work itself: it counts as taken and as failed.
void OfiEndpoint::rejected(const Work& work, int64_t code) {
  Completion completion = about(CompletionKind::sent, static_cast<int>(-code));
  completion.context = work.context;
  const std::string why = queue_.device().library()->errorText(code);
  queue_.report(completion, named("posting to", why));
  life_.apply(LaneEvent::workFailed, completion.error, why);
}

bool OfiEndpoint::finished(const Operation& operation, int error, std::string_view why, Completion* out) {
  operation.stream->outstanding--;
  if (error != 0) [[unlikely]] {
    noteStrays();
    if (!closing_) operation.stream->fenced = true;
    if (life_.ready()) life_.apply(LaneEvent::workFailed, error, std::string(why));
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

void OfiEndpoint::noteStrays() {
  if (!software()) strayUntil_ = queue_.device().clock().now() + kStrayPackets;
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
  life_.apply(LaneEvent::broke, life_.ready() ? FI_ECONNRESET : FI_EIO, why);
}

// The slow half: connecting, fencing and closing. Nothing below runs while a lane carries data.

bool OfiEndpoint::progress(TimePoint now, bool drained) {
  drained_ = drained;
  if (life_.state() == LaneState::connecting && now < life_.deadline()) greetPeer(now);
  return life_.progress(now);
}

int64_t OfiEndpoint::sendHello(Stream* stream) {
  Operation* operation = queue_.operations().take();
  if (!operation) return kNoneFree;
  operation->lane = this;
  operation->stream = stream;
  operation->context = 0;
  operation->purpose = Purpose::hello;
  RmaMessage message(helloSource(), helloTarget(), queue_.device().helloMemory().descriptor());
  const bool tells = queue_.device().traits().oneDials;
  const ssize_t code = fi_writemsg(stream->endpoint, message.to(stream->to, operation, tells ? kRing : 0),
                                   deliveredFlag() | (tells ? FI_REMOTE_CQ_DATA : 0));
  if (code != 0) {
    queue_.operations().give(operation);
    return code;
  }
  stream->helloInFlight = true;
  stream->outstanding++;
  return 0;
}

// A try to post makes a provider connect; -FI_EAGAIN says that it is not connected yet. A peer that is not
// there looks the same, so only the deadline ends the tries.
void OfiEndpoint::greetPeer(TimePoint now) {
  for (Stream& stream : streams()) {
    if (stream.stands || stream.helloInFlight || !known_) continue;
    if (!stream.mayDial && now < dialAnyway_) continue;
    const int64_t code = sendHello(&stream);
    if (code >= 0 || code == -FI_EAGAIN) continue;
    life_.apply(LaneEvent::refused, static_cast<int>(-code), queue_.device().library()->errorText(code));
    return;
  }
}

namespace {

// Where both ends dial at once, one of the two connections is dropped, sometimes under the first write; the
// lane then sends its hello again. A peer that is really gone is found by the deadline and by the control
// link.
bool worthRingingAgain(int error) {
  return error == FI_ENOTCONN || error == FI_ECANCELED || error == FI_ECONNREFUSED ||
         error == FI_ECONNRESET || error == FI_ECONNABORTED;
}

}  // namespace

void OfiEndpoint::helloFinished(Stream* stream, int error, const std::string& why) {
  stream->helloInFlight = false;
  const LaneState state = life_.state();
  if (state == LaneState::retiring && !closing_) {
    stream->fenced = true;  // acknowledged, or the connection has ended
  } else if (state == LaneState::connecting && error != 0) {
    if (!worthRingingAgain(error)) life_.apply(LaneEvent::refused, error, why);
  } else if (state == LaneState::connecting) {
    stream->stands = true;
    stream->fenced = false;  // an earlier attempt may have been lost
    const auto stands = [](const Stream& each) { return each.stands; };
    if (!std::all_of(streams().begin(), streams().end(), stands)) return;
    if (software()) closeConnectionsOnExec(mine_.names, peer_.names);
    life_.apply(LaneEvent::stands);
  }
}

void OfiEndpoint::helloCame(fi_addr_t by) {
  for (Stream& stream : streams())
    if (stream.to == by) stream.mayDial = true;
}

// A lane that was never ready carried nothing. A lane that was ready is fenced by its works, which come back.
size_t OfiEndpoint::dropOutstanding(LaneState from, int, const std::string&) {
  for (Stream& stream : streams()) stream.fenced |= from != LaneState::ready;
  return 0;
}

void OfiEndpoint::retire() {
  life_.apply(LaneEvent::retire);
}

void OfiEndpoint::startFence(LaneState from) {
  const bool nothing = from == LaneState::idle || queue_.device().traits().delivery == Delivery::always;
  if (from != LaneState::retired)
    for (Stream& stream : streams()) stream.fenced |= nothing;
  queue_.progress(this);
}

std::optional<int> OfiEndpoint::fenced(TimePoint now, bool late) {
  if (queue_.endpointClosing()) return std::nullopt;
  return closing_ ? closed(now) : landing(now, late);
}

// Closing a socket does not take back the bytes that are in it. So a healthy lane is fenced by one more write
// behind everything else: when it is acknowledged, everything before it has landed. A peer that does not poll
// cannot acknowledge; the lane is then cut at the deadline, and `retired` is not ok. Lanes that share an
// endpoint can only be cut together: while others are wanted there, the protocol has to decide.
std::optional<int> OfiEndpoint::landing(TimePoint now, bool late) {
  const bool all = everythingLanded();
  if ((!all && !late) || now < strayUntil_) return std::nullopt;
  if (!all && !software() && queue_.sharedEndpoint()) {
    if (queue_.wantedLanes() == 0) {
      queue_.cutEndpoint(kCut);
      return std::nullopt;
    }
    queue_.holdMemory();
    return stayBusy();
  }
  if (outstanding() > 0 && !queue_.device().traits().closesCleanly) return stayBusy();
  closeFabric();
  closing_ = true;
  return std::nullopt;
}

std::optional<int> OfiEndpoint::stayBusy() {
  onItsWay_ = true;
  return FI_EBUSY;
}

// Another lane that could not be fenced either may have asked for the cut before.
bool OfiEndpoint::cut() {
  if (life_.state() != LaneState::retired || software()) return false;
  if (onItsWay_ && !queue_.endpointClosing()) queue_.cutEndpoint(kCut);
  closing_ = true;
  return life_.apply(LaneEvent::cut);
}

bool OfiEndpoint::landed(Stream* stream) {
  if (!stream->fenced && !stream->helloInFlight) {
    const int64_t code = sendHello(stream);
    const bool gone = code == -FI_EAGAIN && stream->outstanding == 0 && queue_.device().traits().connections;
    stream->fenced = gone || (code < 0 && code != -FI_EAGAIN);
  }
  return stream->fenced && stream->outstanding == 0;
}

bool OfiEndpoint::everythingLanded() {
  size_t count = 0;  // all are asked, so that their hello writes are on their way together
  for (Stream& stream : streams()) count += landed(&stream);
  return count == count_;
}

size_t OfiEndpoint::outstanding() const {
  size_t sum = 0;
  for (const Stream& stream : streams_) sum += stream.outstanding;
  return sum;
}

void OfiEndpoint::endpointGoing(const std::string& why) {
  died(why);
  streams_[0].endpoint = nullptr;
}

void OfiEndpoint::endpointGone(const std::string& why) {
  broke(why);  // first: it sets the reason of everything that follows
  if (outstanding() > 0) noteStrays();
  failOutstanding();
  streams_[0] = {};
  streams_[0].fenced = true;
  onItsWay_ = false;
}

// The operations of a closed endpoint are all in the completion queue, as cancelled. Once that is read to its
// end, an operation that is still missing will not come.
std::optional<int> OfiEndpoint::closed(TimePoint now) const {
  if ((outstanding() > 0 && !drained_) || now < strayUntil_) return std::nullopt;
  const auto own = std::span(streams_).first(count_);
  const bool all = std::all_of(own.begin(), own.end(), [](const Stream& stream) { return stream.fenced; });
  return all ? 0 : FI_ETIMEDOUT;
}

void OfiEndpoint::closeFabric() {
  if (streams_[0].own) queue_.turnStrangersAway(mine_.names);
  for (Stream& stream : streams_) {
    stream.own.reset();
    stream.endpoint = nullptr;
  }
}

// Reports works that libfabric will not report any more. Their operations stay out of the pool, in case it
// does.
void OfiEndpoint::failOutstanding() {
  queue_.abandon(this, [this](const Operation& operation) {
    if (operation.purpose == Purpose::hello) return;
    Completion completion = about(CompletionKind::sent, FI_ECANCELED);
    completion.context = operation.context;
    queue_.report(completion, named("writing to or reading from", "the lane was retired"));
  });
  for (Stream& stream : streams_) stream.outstanding = 0;
}

}  // namespace weft::ofi
