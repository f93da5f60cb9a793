// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors

// Stream's sending half.
#include <algorithm>
#include <cerrno>
#include <sys/socket.h>

#include "providers/tcp/stream.h"

namespace weft::tcp {

namespace {

constexpr size_t kFrames = 32;  // that one call takes along
constexpr size_t kMostSent =
    512 << 10;  // about as much: the receiver starts earlier, and finds it in the cache

}  // namespace

struct Stream::Gathered {
  std::array<iovec, 2 * kFrames> parts;
  size_t count = 0;
  size_t bytes = 0;
  std::array<KeyTable::Use, 4> pins;  // of replies, until the call is over
  size_t pinned = 0;

  void add(const void* from, size_t length) {
    if (length == 0) return;
    parts[count++] = {const_cast<void*>(from), length};
    bytes += length;
  }
};

void Stream::close() {
  fd_.reset();
  sendError_ = 0;
}

void Stream::cut() {
  const linger now{.l_onoff = 1, .l_linger = 0};
  (void)::setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
  close();
}

void Stream::pushControl(FrameKind kind, uint32_t number) {
  Outgoing outgoing;
  outgoing.header.kind = kind;
  outgoing.header.number = number;
  out_.push(outgoing);
}

void Stream::pushWelcome(const Tag128& tag) {
  Outgoing outgoing;
  outgoing.header.kind = FrameKind::welcome;
  putTag(tag, &outgoing.header);
  out_.push(outgoing);
}

void Stream::pushHello(const Hello& said) {
  hello = said;
  helloBytes_ = encode(said);
  Outgoing outgoing;
  outgoing.purpose = Purpose::hello;
  outgoing.data = helloBytes_.data();
  outgoing.header.length = kHelloBytes;
  out_.push(outgoing);
}

size_t Stream::dataBytes(const Outgoing& outgoing) {
  return outgoing.header.carries() || outgoing.purpose == Purpose::hello ? outgoing.header.length : 0;
}

// The memory of a reply may have gone since it was asked for.
bool Stream::gatherReply(const Outgoing& outgoing, Gathered* into, size_t skip) {
  if (into->pinned == into->pins.size()) return false;
  KeyTable::Use& pin = into->pins[into->pinned++];
  pin = host_.regions().use(outgoing.header.key, PeerAccess::readAndWrite);
  const std::byte* from = pin.at(outgoing.header.offset, outgoing.header.length);
  if (!from) return false;
  into->add(from + skip, std::min(outgoing.header.length - skip, kMostSent));
  return true;
}

// False: the first frame cannot go on. A later one that cannot is left for the next call.
bool Stream::gather(Gathered* into) {
  for (size_t i = 0; i < out_.size() && i < kFrames && into->bytes < kMostSent; i++) {
    Outgoing& outgoing = out_[i];
    const size_t sent = i == 0 ? sentOfFirst_ : 0;
    const size_t ofHeader = headerBytes(outgoing);
    if (sent == 0) outgoing.header.landed = landed_;
    const auto* header = reinterpret_cast<const std::byte*>(&outgoing.header);
    const size_t count = into->count;
    const size_t bytes = into->bytes;
    if (sent < ofHeader) into->add(header + sent, ofHeader - sent);
    const size_t skip = sent > ofHeader ? sent - ofHeader : 0;
    if (outgoing.purpose != Purpose::reply) {
      into->add(outgoing.data + skip, std::min(dataBytes(outgoing) - skip, kMostSent));
    } else if (!gatherReply(outgoing, into, skip)) {
      into->count = count;
      into->bytes = bytes;
      return i > 0;
    }
  }
  return true;
}

// The hello goes as it is, so that the other end can tell whose keys these are.
void Stream::sealBy(std::unique_ptr<SealedChannel> channel) {
  (standing ? channel_ : nextChannel_) = std::move(channel);
}

ssize_t Stream::sendParts(const iovec* parts, size_t count) {
  if (channel_) return channel_->send(fd_.get(), {parts, count});
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts);
  message.msg_iovlen = count;
  return ::sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void Stream::flush() {
  if (holdsSealed() && sendError_ == 0) {
    const int error = channel_->drain(fd_.get());
    if (error != 0 && error != EAGAIN) sendError_ = error;
    if (error != 0) return;
  }
  while (!out_.empty() && sendError_ == 0) {
    Gathered gathered;
    if (!gather(&gathered)) {
      fail(EACCES, "memory that the peer is reading was deregistered");
      return;
    }
    const ssize_t sent = sendParts(gathered.parts.data(), gathered.count);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      // The peer's last words may wait to be read: receive() ends this.
      if (errno != EAGAIN && errno != EWOULDBLOCK) sendError_ = errno;
      return;
    }
    took(static_cast<size_t>(sent));
    if (static_cast<size_t>(sent) < gathered.bytes || gathered.bytes >= kMostSent) return;
  }
}

void Stream::took(size_t bytes) {
  sentOfFirst_ += bytes;
  while (!out_.empty()) {
    const Outgoing& first = out_.front();
    const size_t whole = headerBytes(first) + dataBytes(first);
    if (sentOfFirst_ < whole) return;
    sentOfFirst_ -= whole;
    const Outgoing outgoing = first;
    out_.pop();
    left(outgoing);
  }
}

void Stream::left(const Outgoing& outgoing) {
  if (outgoing.purpose == Purpose::hello) channel_ = std::move(nextChannel_);
  if (outgoing.purpose != Purpose::hello) acknowledged_ = outgoing.header.landed;
  if (outgoing.purpose > Purpose::unsignaled) return;
  if (outgoing.wantsAck())
    awaiting_.push({outgoing.context, outgoing.purpose});
  else
    host_.workFinished(outgoing.purpose, outgoing.context);
}

}  // namespace weft::tcp
