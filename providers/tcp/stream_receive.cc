// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors

// Stream's receiving half. Everything here was chosen by the peer: a frame is looked at before a byte of
// it lands, and one that is not in order ends the connection.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/socket.h>
#include <utility>

#include "providers/common/keyed_memory.h"
#include "providers/tcp/stream.h"
#include "src/base/advice.h"

namespace weft::tcp {

namespace {

constexpr size_t kMostRead = size_t{1} << 20;  // one call reads no more: others want their turn
constexpr int kReads = 4;                      // of one turn
// How much is read together with a header: many small frames, or of a large one's neighbour hardly anything
// (kAheadOfLarge).
constexpr size_t kAheadOfSmall = 9 << 10;
static_assert(kAheadOfSmall <= Stream::kBufferBytes);
constexpr uint64_t kDropped = 0;  // no region has this key: it stands for a message that goes nowhere

}  // namespace

// What was read and is not taken yet. Where memory runs out it is kept: the call that polls fails, and the
// next poll goes on, as the kernel has it no more.
struct Stream::Unused {
  ~Unused() {
    if (taken) return;
    of.lacked_ = true;
    of.rest_.assign(bytes.begin(), bytes.end());
  }
  Stream& of;
  std::span<const std::byte> bytes;
  bool taken = false;
};

bool Stream::receive(Buffer& buffer) {
  if (awaitsDoor_ && !hearDoor()) return false;
  if (lacked_ && !goOn()) [[unlikely]]
    return false;
  if (waits() && !resume()) return false;
  bool any = false;
  for (int i = 0; i < kReads; i++) {
    size_t inPlace = 0, asked = 0;
    const ssize_t got = readSome(buffer, &inPlace, &asked);
    if (got <= 0) {
      if (!ended(got)) return false;
      break;
    }
    any = true;
    const auto bytes = static_cast<size_t>(got);
    const size_t direct = std::min(bytes, inPlace);
    done_ += static_cast<uint32_t>(direct);
    const bool whole = inFrame_ && done_ == header_.length;
    if ((whole || bytes > direct) && !parse(std::span(buffer).first(bytes - direct))) return false;
    if (bytes < asked || waits()) break;
  }
  if (landed_ != acknowledged_ && out_.empty()) {
    pushControl(FrameKind::ack);
    flush();
  }
  return any && open();
}

// True: the end that accepted has said its words, and the hello is on its way.
bool Stream::hearDoor() {
  while (haveDoor_ < doorBytes_.size()) {
    const ssize_t got =
        ::recv(fd_.get(), doorBytes_.data() + haveDoor_, doorBytes_.size() - haveDoor_, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return ended(got) && false;
    haveDoor_ += static_cast<size_t>(got);
  }
  awaitsDoor_ = false;
  if (!decodeDoor(doorBytes_, &door)) return fail(EPROTO, "something that is no weft answers at its port");
  return host_.doorSaid(*this, door);
}

// Of a frame that is arriving the rest goes to its place, and what follows it into the buffer. 0 and below as
// recvmsg has it.
ssize_t Stream::readSome(Buffer& buffer, size_t* inPlace, size_t* asked) {
  std::array<iovec, 2> parts;
  size_t count = 0;
  Landing landing;
  if (inFrame_) {
    if (!locate(&landing)) return -1;
    *inPlace = std::min<size_t>(header_.length - done_, landing.at ? kMostRead : buffer.size());
    parts[count++] = {landing.at ? landing.at + done_ : buffer.data(), *inPlace};
  }
  const bool dropped = inFrame_ && !landing.at;  // through the buffer, which then takes nothing else
  const bool toItsEnd = !inFrame_ || (!dropped && *inPlace == header_.length - done_);
  if (toItsEnd) parts[count++] = {buffer.data(), ahead_};
  *asked = *inPlace + (toItsEnd ? ahead_ : 0);
  ssize_t got;
  do {
    got = receiveParts(parts.data(), count);
  } while (got < 0 && errno == EINTR);
  return got;
}

ssize_t Stream::receiveParts(iovec* parts, size_t count) {
  if (channel_) return channel_->receive(fd_.get(), {parts, count});
  if (count == 1) return ::recv(fd_.get(), parts[0].iov_base, parts[0].iov_len, MSG_DONTWAIT);
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = count;
  return ::recvmsg(fd_.get(), &message, MSG_DONTWAIT);
}

// True: there is only nothing to read.
bool Stream::ended(ssize_t result) {
  if (!open()) return false;
  if (result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    // A failed send has ended the connection, though the peer left no word.
    return sendError_ == 0 || fail(sendError_, errnoWords(sendError_));
  }
  if (result < 0 && errno == EBADMSG)
    return fail(EBADMSG,
                "bytes were changed on their way (WEFT_ENCRYPT=all); look at who is on that network");
  if (sendError_ != 0) return fail(sendError_, errnoWords(sendError_));
  if (result == 0) {
    peerLeft = true;  // it reads no more either
    return fail(ECONNRESET, "the peer closed its end");
  }
  return fail(errno, errnoWords(errno));
}

bool Stream::parse(std::span<const std::byte> bytes) {
  Unused unused{*this, bytes};
  const bool goesOn = take(&unused.bytes);
  unused.taken = true;
  return goesOn;
}

bool Stream::goOn() {
  lacked_ = false;
  const std::vector<std::byte> rest = std::exchange(rest_, {});
  return parse(rest);
}

// Each step is done when it is over: one that memory runs out for is taken again.
bool Stream::take(std::span<const std::byte>* bytes) {
  for (;;) {
    if (!inFrame_) {
      if (haveHeader_ < kHeaderBytes) {
        if (bytes->empty()) return true;
        const size_t more = std::min(bytes->size(), kHeaderBytes - haveHeader_);
        std::memcpy(reinterpret_cast<std::byte*>(&header_) + haveHeader_, bytes->data(), more);
        haveHeader_ += static_cast<uint32_t>(more);
        *bytes = bytes->subspan(more);
        if (haveHeader_ < kHeaderBytes) return true;
      }
      if (!begin(bytes->size())) return false;
      if (waits()) {
        heldBytes_ = bytes->size();
        std::copy(bytes->begin(), bytes->end(), held_.begin());
        return true;
      }
      if (!inFrame_) continue;
    }
    if (done_ < header_.length) {
      if (bytes->empty()) return true;
      Landing landing;
      if (!locate(&landing)) return false;
      const size_t more = std::min<size_t>(bytes->size(), header_.length - done_);
      if (landing.at) std::memcpy(landing.at + done_, bytes->data(), more);
      done_ += static_cast<uint32_t>(more);
      *bytes = bytes->subspan(more);
      if (done_ < header_.length) return true;
    }
    finish();
  }
}

// A header is complete, and so many bytes behind it are here. A frame with bytes goes on from here, others
// are over.
bool Stream::begin(size_t here) {
  if (!wellFormed(header_)) return refuse(Refused::protocol, "it sent something that is no frame of weft's");
  if (!acknowledged(header_.landed)) return false;
  if (header_.carries()) {
    if (!standing) return refuse(Refused::protocol, "it sent data before it was welcome");
    ahead_ = header_.length >= kBulkBytes ? kAheadOfLarge : kAheadOfSmall;
    if (header_.kind == FrameKind::message && !placeMessage(here <= held_.size())) return false;
    haveHeader_ = done_ = 0;
    return waits() || enter();
  }
  if (header_.kind == FrameKind::readRequest) return answerRead();
  if (header_.kind != FrameKind::ack && !host_.control(*this, header_)) return false;
  haveHeader_ = 0;
  return true;
}

bool Stream::enter() {
  inFrame_ = true;
  Landing landing;
  return locate(&landing);
}

// A message is asked for its place until it has one; from then on it is a write to memory of ours, or to
// nowhere. It waits in the kernel, but for what came with its header: that is little, and of no other frame.
bool Stream::placeMessage(bool mayWait) {
  static_assert(kBulkBytes > kAheadOfLarge);
  mayWait = mayWait && header_.length >= kBulkBytes && asks_ < patience_;
  const weft::Place where = host_.place(header_, mayWait);
  if (where.refusal) return refuse(Refused::protocol, where.refusal);
  if (where.later && mayWait) {
    asks_++;
    return true;
  }
  if (waits()) learn(mayWait);
  asks_ = 0;
  placed_ = where.context;
  header_.key = where.memory ? static_cast<const KeyedMemory*>(where.memory)->key() : kDropped;
  header_.offset = where.offset;
  return true;
}

// The message that waited is asked for once more. False: it waits on, or the stream is over.
bool Stream::resume() {
  if (!placeMessage(true) || waits()) return false;
  return enter() && parse(std::span(held_).first(heldBytes_));
}

// Waiting for receives that do not come delays what is behind. So a connection on which it was in vain waits
// half as long the next time, and one on which it helped twice as long.
void Stream::learn(bool inTime) {
  patience_ = inTime ? std::min(kMostAsks, patience_ * 2) : std::max(1, patience_ / 2);
}

// Where the frame's first byte belongs; null: the frame is dropped. False: it belongs nowhere, and the stream
// is over.
bool Stream::locate(Landing* landing) {
  static std::byte nowhere;
  if (header_.kind == FrameKind::readReply) {
    landing->at = host_.readInto(header_.number, header_.length);
    return landing->at || refuse(Refused::protocol, "it answered a read that nobody asked for");
  }
  if (header_.length == 0) {
    landing->at = &nowhere;
    return true;
  }
  if (header_.kind == FrameKind::message && header_.key == kDropped) {
    landing->at = nullptr;
    return true;
  }
  landing->pin = host_.regions().use(header_.key, PeerAccess::write);
  if (!landing->pin.valid())
    return refuse(Refused::memory, "it wrote to memory that is not registered here (any more)");
  landing->at = landing->pin.at(header_.offset, header_.length);
  return landing->at || refuse(Refused::range, "it wrote outside the memory that it named");
}

void Stream::finish() {
  if (header_.kind == FrameKind::message && placed_ != 0) host_.messageLanded(placed_, header_.length);
  if (header_.kind == FrameKind::notify) host_.notified(header_.number, header_.length);
  if (header_.kind == FrameKind::readReply) host_.readFinished(header_.number);
  if (header_.flags & kWantsAck) landed_++;
  inFrame_ = false;
}

bool Stream::acknowledged(uint32_t landed) {
  const uint32_t more = landed - acked_;
  if (more == 0) return true;
  if (more > awaiting_.size()) return refuse(Refused::protocol, "it acknowledged what was not sent");
  for (; acked_ != landed; acked_++) {
    const Awaiting first = awaiting_.front();
    host_.workFinished(first.purpose, first.context);
    awaiting_.pop();
  }
  return true;
}

bool Stream::answerRead() {
  constexpr size_t kMostReplies = 1 << 16;  // no Queue has more reads in flight
  if (!standing || out_.size() > kMostReplies)
    return refuse(Refused::protocol, "it asked for more than a lane may");
  KeyTable::Use pin = host_.regions().use(header_.key, PeerAccess::readAndWrite);
  if (!pin.valid()) return refuse(Refused::memory, "it read memory that is not registered here (any more)");
  if (!pin.at(header_.offset, header_.length))
    return refuse(Refused::range, "it read outside the memory that it named");
  pin.release();
  Outgoing reply;
  reply.header = header_;
  reply.header.kind = FrameKind::readReply;
  reply.header.flags = 0;
  reply.purpose = Purpose::reply;
  out_.push(reply);
  haveHeader_ = 0;
  flush();
  return open();
}

// Tells the other end why, if that can be told at once, ahead of all that waits.
bool Stream::refuse(Refused reason, const char* why) {
  FrameHeader header;
  header.kind = FrameKind::refusal;
  header.number = static_cast<uint32_t>(reason);
  header.landed = landed_;
  const iovec part{&header, sizeof header};
  if (sentOfFirst_ == 0 && !holdsSealed()) (void)sendParts(&part, 1);
  return fail(reason == Refused::protocol ? EPROTO : EACCES, why);
}

bool Stream::fail(int error, const std::string& why) {
  if (open()) host_.streamFailed(*this, error, why);
  return false;
}

}  // namespace weft::tcp
