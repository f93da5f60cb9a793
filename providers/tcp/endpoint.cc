// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/tcp/endpoint.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "providers/common/keyed_memory.h"
#include "src/base/log.h"

namespace weft::tcp {

namespace {

// Within one host, where connections share the same processors: writes from here on take turns.
constexpr uint32_t kTurnBytes = 512 << 10;
constexpr uint32_t kRoundsToLook = 8;  // over all connections, between two looks at the clock

LaneLife::Terms termsOf(const Config& config) {
  return {
      .connect = config.connectTimeout,
      .close = config.closeTimeout,
      .notFenced = "the peer did not acknowledge; what is in its socket may land until it closes its end"};
}

FrameKind kindOf(Opcode op) {
  if (op == Opcode::message) return FrameKind::message;
  return op == Opcode::write ? FrameKind::write : FrameKind::notify;
}

}  // namespace

TcpEndpoint::TcpEndpoint(TcpQueue& queue, const LaneAddress& mine)
    : queue_(queue),
      mine_(mine),
      address_(encode(mine)),
      life_(*this, queue.device().clock(), termsOf(queue.device().config())),
      spread_(static_cast<size_t>(queue.device().config().tcpStreams), queue.device().speedMbps()) {}

TcpEndpoint::~TcpEndpoint() {
  for (const auto& stream : streams_) {
    stream->dropAll([this](Purpose purpose, uint64_t) {
      if (purpose <= Purpose::unsignaled) queue_.workGone();
    });
    queue_.forget(stream.get());
  }
  for (const Read& read : reads_)
    if (read.open) queue_.workGone();
  queue_.forget(this);
}

Result<RemoteMemory> TcpEndpoint::import(std::span<const std::byte> blob) {
  return decodeKeyedMemory(blob, kMemoryMagic);
}

// What goes over one connection leaves in one call, whatever goes over others in between.
size_t TcpEndpoint::post(std::span<const Work> works) {
  size_t taken = 0;
  while (taken < works.size() && life_.ready() && queue_.hasRoom()) {
    const Work& work = works[taken++];
    queue_.workPosted();
    const int error = faultOf(work, kMaxWriteBytes);
    if (error != 0) [[unlikely]] {
      reject(work, error);
      return taken;
    }
    put(streamFor(work), work);
  }
  sendFilled();
  return taken;
}

// A connection that fails takes the lane's others along.
void TcpEndpoint::sendFilled() {
  for (size_t i = 0; i < streams_.size(); i++) {
    Stream& stream = *streams_[i];
    if (!std::exchange(stream.filled, false)) continue;
    if (stream.open()) send(stream);
  }
}

void TcpEndpoint::put(Stream& stream, const Work& work) {
  if (work.op == Opcode::read) return putRead(stream, work);
  Outgoing outgoing;
  outgoing.header.length = static_cast<uint32_t>(work.length);
  outgoing.header.kind = kindOf(work.op);
  outgoing.header.flags = work.delivered ? kWantsAck : uint8_t{0};
  outgoing.header.number = work.imm;
  outgoing.header.key = work.remote.key;
  outgoing.header.offset = work.remote.base + work.remoteOffset;
  outgoing.data = static_cast<const std::byte*>(work.local);
  outgoing.context = work.context;
  outgoing.purpose = work.unsignaled ? Purpose::unsignaled : Purpose::work;
  stream.push(outgoing);
  stream.filled = true;
}

void TcpEndpoint::putRead(Stream& stream, const Work& work) {
  if (freeReads_.empty()) {
    freeReads_.reserve(reads_.size() + 1);
    reads_.emplace_back();
    freeReads_.push_back(static_cast<uint32_t>(reads_.size() - 1));
  }
  const uint32_t number = freeReads_.back();
  freeReads_.pop_back();
  const auto length = static_cast<uint32_t>(work.length);
  reads_[number] = {static_cast<std::byte*>(work.local), length, true, work.context};
  Outgoing request;
  request.header.length = length;
  request.header.kind = FrameKind::readRequest;
  request.header.number = number;
  request.header.key = work.remote.key;
  request.header.offset = work.remote.base + work.remoteOffset;
  request.context = number;
  request.purpose = Purpose::request;
  stream.push(request);
  stream.filled = true;
}

// The Work counts as taken, and as failed; the lane ends with it, as a queue pair does.
void TcpEndpoint::reject(const Work& work, int error) {
  const char* why = faultWords(error);
  failWork(work.context, error, why);
  life_.apply(LaneEvent::workFailed, ECANCELED, why);
}

// Small writes all go over the first stream, and wait for nothing but each other. Within one host a comm's
// messages of middling size stay on one stream, so that the peer has fewer to look at; those of the other
// direction are on another one, as both ends of a socket take its lock.
Stream& TcpEndpoint::streamFor(const Work& work) {
  if (work.length < Stream::kBulkBytes || work.op == Opcode::read) return *streams_.front();
  if (!asked_) wantStreams(spread_.first());
  if (bulk_.empty()) return *streams_.front();
  if (work.length < kTurnBytes && work.op == Opcode::message && withinHost())
    return *bulk_[(work.remote.base + (dials_ ? 1 : 0)) % bulk_.size()];
  if (++turn_ >= bulk_.size()) {
    turn_ = 0;
    if (++rounds_ % kRoundsToLook == 0) [[unlikely]]
      lookAtFlows();
  }
  return *bulk_[turn_];
}

void TcpEndpoint::send(Stream& stream) {
  stream.flush();
  if (stream.blocked()) queue_.flushLater(&stream);
}

void TcpEndpoint::notified(uint32_t imm, uint32_t length) {
  Completion completion;
  completion.kind = CompletionKind::notified;
  completion.imm = imm;
  completion.length = length;
  completion.source = this;
  queue_.report(completion);
}

Place TcpEndpoint::place(const FrameHeader& header, bool mayWait) {
  Placer* placer = queue_.placer();
  if (!placer) return {.refusal = "it sent a message, which nobody takes here"};
  return placer->place(*this, {header.number, {header.offset, header.key}}, header.length, mayWait);
}

void TcpEndpoint::messageLanded(uint64_t context, uint32_t length) {
  Completion completion;
  completion.kind = CompletionKind::landed;
  completion.length = length;
  completion.context = context;
  completion.source = this;
  queue_.report(completion);
}

void TcpEndpoint::workFinished(Purpose purpose, uint64_t context) {
  if (purpose == Purpose::unsignaled) return queue_.workGone();
  Completion completion;
  completion.context = context;
  completion.source = this;
  queue_.report(completion);
}

std::byte* TcpEndpoint::readInto(uint32_t number, uint32_t length) {
  if (number >= reads_.size()) return nullptr;
  const Read& read = reads_[number];
  return read.open && read.length == length ? read.into : nullptr;
}

void TcpEndpoint::readFinished(uint32_t number) {
  workFinished(Purpose::work, reads_[number].context);
  reads_[number].open = false;
  freeReads_.push_back(number);
}

std::string TcpEndpoint::named(const char* what, const std::string& why) const {
  return format("%s %s over tcp %s: %s", what, peerText_.empty() ? "the peer" : peerText_.c_str(),
                queue_.device().info().name.c_str(), why.c_str());
}

void TcpEndpoint::failWork(uint64_t context, int error, const std::string& why) {
  Completion completion = about(CompletionKind::sent, error);
  completion.context = context;
  queue_.reportAfter(completion, named("writing to or reading from", why));
}

void TcpEndpoint::failRead(uint64_t number, int error, const std::string& why) {
  Read& read = reads_[number];
  read.open = false;
  freeReads_.push_back(static_cast<uint32_t>(number));
  failWork(read.context, error, why);
}

// All that is not finished; how many there were.
size_t TcpEndpoint::failWorks(int error, const std::string& why) {
  size_t count = 0;
  for (const auto& stream : streams_) {
    stream->dropAll([&](Purpose purpose, uint64_t context) {
      if (purpose > Purpose::unsignaled) return;
      failWork(context, error, why);
      count++;
    });
  }
  for (size_t i = 0; i < reads_.size(); i++) {
    if (!reads_[i].open) continue;
    failRead(i, error, why);
    count++;
  }
  return count;
}

// The slow half: connecting, fencing and closing. Nothing from here on runs while a lane carries data.

Status TcpEndpoint::connect(std::span<const std::byte> peerAddress) {
  TRY(life_.mayConnect());
  TRY(peer_, decodeLaneAddress(peerAddress));
  peerAddress_.assign(peerAddress.begin(), peerAddress.end());
  peerText_ = peer_.socket().text();
  const std::span<const std::byte> mine(address_);
  toSelf_ = std::equal(mine.begin(), mine.end(), peerAddress.begin(), peerAddress.end());
  dials_ = toSelf_ ||
           std::lexicographical_compare(mine.begin(), mine.end(), peerAddress.begin(), peerAddress.end());
  life_.apply(LaneEvent::connect);
  queue_.progress(this);
  if (peer_.v6 != mine_.v6) {
    life_.apply(LaneEvent::refused, EAFNOSUPPORT,
                "one end has an IPv4 address only and the other one IPv6; choose interfaces "
                "that have the same on all hosts (WEFT_SOCKET_IFNAME)");
  } else if (peer_.sealed != mine_.sealed) {
    life_.apply(LaneEvent::refused, EPROTO,
                "only one end encrypts what it sends; make WEFT_ENCRYPT equal on all ranks");
  } else if (dials_) {
    const Status dialled = dialOne(0);
    if (!dialled) life_.apply(LaneEvent::refused, dialled.error().errnum(), dialled.error().message());
  }
  return {};
}

bool TcpEndpoint::progress(TimePoint now) {
  if (life_.ready()) return now < expecting_ && streams_.size() < target_;
  return life_.progress(now);
}

Stream& TcpEndpoint::addStream(Fd fd) {
  if (withinHost()) keepShort(fd.get());
  streams_.push_back(std::make_unique<Stream>(static_cast<StreamHost&>(*this), std::move(fd)));
  queue_.read(streams_.back().get());
  return *streams_.back();
}

void TcpEndpoint::connected() {
  fenced_ = false;
  life_.apply(LaneEvent::stands);
}

// Of two ends the one with fewer streams decides.
size_t TcpEndpoint::mostStreams() const {
  if (toSelf_) return 1;
  return std::min<size_t>({mine_.streams, peer_.streams, kMostStreams});
}

// The end that dialled the first one dials the others too, so that the ends agree on what there is.
void TcpEndpoint::wantStreams(size_t number) {
  asked_ = true;
  number = std::min(number, mostStreams());
  if (number <= target_) return;
  target_ = number;
  Stream& first = *streams_.front();
  first.pushControl(FrameKind::streams, static_cast<uint32_t>(number));
  send(first);
  if (dials_)
    dialStreams();
  else
    expectStreams();
}

void TcpEndpoint::expectStreams() {
  expecting_ = queue_.device().clock().now() + queue_.device().config().connectTimeout;
  queue_.progress(this);
}

// More connections are asked for where the network carries too little over one.
void TcpEndpoint::lookAtFlows() {
  if (toSelf_ || withinHost() || spread_.settled()) return;
  const TimePoint now = queue_.device().clock().now();
  if (!spread_.isDue(now)) return;
  std::array<FlowCounts, kMostStreams> flows;
  size_t count = 0;
  for (const Stream* stream : bulk_)
    if (count < flows.size()) flows[count++] = flowCounts(stream->fd());
  const size_t number = spread_.look(now, std::span(flows).first(count));
  if (number <= target_ || target_ >= mostStreams()) return;
  WEFT_LOG(info, "%s", named("more connections to", spread_.why()).c_str());
  wantStreams(number);
}

// A connection that cannot be had is done without.
void TcpEndpoint::dialStreams() {
  for (size_t i = streams_.size(); i < target_; i++) {
    const Status dialled = dialOne(static_cast<uint8_t>(i));
    if (!dialled)
      WEFT_LOG(info, "%s", named("opening another connection to", dialled.error().message()).c_str());
  }
}

bool TcpEndpoint::control(Stream& stream, const FrameHeader& header) {
  switch (header.kind) {
    case FrameKind::welcome:
      return welcomed(stream, header);
    case FrameKind::streams:
      return streamsAnnounced(header.number);
    case FrameKind::bye:
      stream.peerLeft = true;
      stream.pushControl(FrameKind::byeAnswer);
      stream.flush();
      return stream.open();
    case FrameKind::byeAnswer:
      stream.fenced = life_.state() == LaneState::retiring;
      return true;
    default:
      streamFailed(stream, EACCES, refusalText(header.number));
      return false;
  }
}

bool TcpEndpoint::streamsAnnounced(size_t number) {
  if (!life_.ready()) return true;
  if (number == 0) number = spread_.first();
  if (dials_) {
    wantStreams(number);
    return streams_.front()->open();
  }
  asked_ = true;
  target_ = std::clamp(number, target_, std::max(target_, mostStreams()));
  expectStreams();
  return true;
}

std::string TcpEndpoint::refusalText(uint32_t reason) {
  switch (static_cast<Refused>(reason)) {
    case Refused::memory:
      return "the peer refused a write or read: the memory is not registered there (any more)";
    case Refused::range:
      return "the peer refused a write or read: it leaves the memory that it names";
    default:
      return "the peer refused what it received; both ends need the same version of weft";
  }
}

// A connection ended, or has to. A further one of a lane, which does not stand yet, ends alone.
void TcpEndpoint::streamFailed(Stream& stream, int error, const std::string& why) {
  if (life_.state() == LaneState::connecting) return void(life_.apply(LaneEvent::refused, error, why));
  if (life_.ready() && stream.standing) return void(life_.apply(LaneEvent::broke, error, why));
  if (life_.state() == LaneState::retiring) {
    fenced_ &= stream.fenced || stream.peerLeft;
    stream.dropAll([&](Purpose purpose, uint64_t context) {
      if (purpose <= Purpose::unsignaled) failWork(context, error, why);
    });
  }
  closeStream(stream);
}

// A connection that has ended says nothing of what is still in the peer's other sockets.
size_t TcpEndpoint::dropOutstanding(LaneState from, int error, const std::string& why) {
  const auto over = [](const auto& each) { return each->fenced || each->peerLeft || !each->standing; };
  if (from == LaneState::ready) fenced_ = std::all_of(streams_.begin(), streams_.end(), over);
  const size_t failed = from == LaneState::ready ? failWorks(error, why) : 0;
  closeStreams();
  return failed;
}

void TcpEndpoint::closeStream(Stream& stream) {
  queue_.forget(&stream);
  stream.close();
}

void TcpEndpoint::closeStreams() {
  for (const auto& stream : streams_)
    if (stream->open()) closeStream(*stream);
}

void TcpEndpoint::retire() {
  life_.apply(LaneEvent::retire);
}

void TcpEndpoint::startFence(LaneState from) {
  if (from == LaneState::ready) sayGoodbye();
  queue_.progress(this);
}

// Closing a socket does not take back what is in it. So what has not left stays here, and a goodbye goes
// behind the rest: when it is answered, all that came before it has landed.
void TcpEndpoint::sayGoodbye() {
  fenced_ = true;
  for (const auto& stream : streams_) {
    stream->dropUnsent([&](Purpose purpose, uint64_t context) {
      const char* why = "the lane was retired before";
      if (purpose == Purpose::request)
        failRead(context, ECANCELED, why);
      else
        failWork(context, ECANCELED, why);
    });
    if (!stream->open()) continue;
    if (!stream->standing) {
      closeStream(*stream);
      continue;
    }
    stream->pushControl(FrameKind::bye);
    send(*stream);
  }
}

std::optional<int> TcpEndpoint::fenced(TimePoint, bool late) {
  const auto ended = [](const auto& stream) { return stream->fenced || !stream->open(); };
  const bool over = std::all_of(streams_.begin(), streams_.end(), ended);
  if (!over && !late) return std::nullopt;
  return over && fenced_ ? 0 : ETIMEDOUT;
}

// A peer that does not poll answers nothing. Then the connections are cut, and what is in the peer's sockets
// can land until it closes them.
void TcpEndpoint::endFence(bool passed) {
  failWorks(ECANCELED, "the lane was retired");
  for (const auto& stream : streams_) {
    if (!stream->open()) continue;
    queue_.forget(stream.get());
    if (passed)
      stream->close();
    else
      stream->cut();
  }
}

// A lane stands before anything of its peer is handed out; its end comes after all that it has reported.
void TcpEndpoint::report(const Completion& completion, const std::string& why) {
  if (completion.kind == CompletionKind::connected && completion.ok) return queue_.report(completion);
  queue_.reportAfter(completion, why);
}

}  // namespace weft::tcp
