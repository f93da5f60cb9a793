// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/tcp/sealed_channel.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/socket.h>
#include <utility>

namespace weft::tcp {

namespace {

constexpr size_t kLengthBytes = 4;
constexpr size_t kAround = kLengthBytes + kSealBytes;
constexpr size_t kInBytes = 256 << 10;  // of one read
static_assert(kInBytes > kRecordBytes + kAround);

Key256 keyAt(const Bytes& bytes, size_t index) {
  Key256 key{};
  std::copy_n(bytes.begin() + static_cast<ptrdiff_t>(index * key.size()), key.size(), key.begin());
  return key;
}

}  // namespace

// Both nonces are in the salt, so no two connections have the same keys.
ChannelKeys channelKeys(const Key256& greetingKey, const Greeting& greeting, bool weDialled) {
  ByteWriter salt;
  salt.raw(greeting.door).raw(greeting.hello.nonce).put(greeting.hello.stream);
  Bytes both = hkdf(salt.bytes(), greetingKey, "weft lane bytes", 2 * sizeof(Key256));
  const ChannelKeys keys{keyAt(both, weDialled ? 0 : 1), keyAt(both, weDialled ? 1 : 0)};
  wipe(both);
  return keys;
}

Result<std::unique_ptr<SealedChannel>> SealedChannel::create(const ChannelKeys& keys) {
  TRY(auto out, makeGcmSeal(keys.send));
  TRY(auto in, makeGcmSeal(keys.receive));
  return std::make_unique<SealedChannel>(std::move(out), std::move(in));
}

SealedChannel::SealedChannel(std::unique_ptr<GcmSeal> out, std::unique_ptr<GcmSeal> in)
    : sealOut_(std::move(out)), sealIn_(std::move(in)), plain_(kRecordBytes), in_(kInBytes), opened_() {}

// The bytes are collected first: a header and a small payload share a record, and what is collected is in the
// cache when it is encrypted.
ssize_t SealedChannel::send(int fd, std::span<const iovec> parts) {
  if (const int error = drain(fd); error != 0) return errno = error, -1;
  size_t collected = 0, taken = 0;
  for (const iovec& part : parts) {
    for (size_t at = 0; at < part.iov_len;) {
      const size_t more = std::min(part.iov_len - at, kRecordBytes - collected);
      std::memcpy(plain_.data() + collected, static_cast<const std::byte*>(part.iov_base) + at, more);
      at += more;
      collected += more;
      taken += more;
      if (collected < kRecordBytes) continue;
      if (!seal(std::exchange(collected, 0))) return errno = EIO, -1;
    }
  }
  if (collected > 0 && !seal(collected)) return errno = EIO, -1;
  const int error = drain(fd);
  if (error != 0 && error != EAGAIN) return errno = error, -1;
  return static_cast<ssize_t>(taken);
}

bool SealedChannel::seal(size_t bytes) {
  const size_t at = std::exchange(sealed_, sealed_ + bytes + kAround);
  if (out_.size() < sealed_) out_.resize(std::max(sealed_, 2 * out_.size()));
  const auto length = static_cast<uint32_t>(bytes);
  std::memcpy(out_.data() + at, &length, kLengthBytes);
  std::byte* to = out_.data() + at + kLengthBytes;
  return sealOut_->close(std::span<const std::byte>(plain_).first(bytes), to,
                         std::span<std::byte, kSealBytes>(to + bytes, kSealBytes));
}

int SealedChannel::drain(int fd) {
  while (pending()) {
    const ssize_t sent = ::send(fd, out_.data() + sent_, sealed_ - sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return errno == EWOULDBLOCK ? EAGAIN : errno;
    sent_ += static_cast<size_t>(sent);
  }
  sealed_ = sent_ = 0;
  return 0;
}

// The length of the record at the front if all of it is here; else 0. A length that cannot be is found when
// the record does not open.
size_t SealedChannel::wholeRecord() const {
  if (inTo_ - inFrom_ < kLengthBytes) return 0;
  uint32_t length = 0;
  std::memcpy(&length, in_.data() + inFrom_, kLengthBytes);
  const size_t whole = std::min<size_t>(length, kRecordBytes);
  return inTo_ - inFrom_ >= whole + kAround ? std::max<size_t>(whole, 1) : 0;
}

bool SealedChannel::openInto(std::byte* to, size_t length) {
  uint32_t said = 0;
  std::memcpy(&said, in_.data() + inFrom_, kLengthBytes);
  const std::byte* from = in_.data() + inFrom_ + kLengthBytes;
  inFrom_ += length + kAround;
  return said == length &&
         sealIn_->open({from, length}, to, std::span<const std::byte, kSealBytes>(from + length, kSealBytes));
}

ssize_t SealedChannel::fill(int fd) {
  std::memmove(in_.data(), in_.data() + inFrom_, inTo_ - inFrom_);
  inTo_ -= std::exchange(inFrom_, 0);
  ssize_t got;
  do {
    got = ::recv(fd, in_.data() + inTo_, in_.size() - inTo_, MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  if (got > 0) inTo_ += static_cast<size_t>(got);
  return got;
}

// Hands out what is here. False: a record did not open.
bool SealedChannel::deliver(std::byte** to, size_t* room, size_t* given) {
  while (*room > 0) {
    if (openedFrom_ == opened_.size()) {
      const size_t length = wholeRecord();
      if (length == 0) return true;
      if (length <= *room) {
        if (!openInto(*to, length)) return false;
        *to += length, *room -= length, *given += length;
        continue;
      }
      opened_.resize(length);
      openedFrom_ = 0;
      if (!openInto(opened_.data(), length)) return false;
    }
    const size_t more = std::min(*room, opened_.size() - openedFrom_);
    std::memcpy(*to, opened_.data() + openedFrom_, more);
    openedFrom_ += more;
    *to += more, *room -= more, *given += more;
  }
  return true;
}

ssize_t SealedChannel::receive(int fd, std::span<const iovec> parts) {
  size_t given = 0;
  bool read = false;
  for (const iovec& part : parts) {
    auto* to = static_cast<std::byte*>(part.iov_base);
    for (size_t room = part.iov_len; room > 0;) {
      broken_ = broken_ || !deliver(&to, &room, &given);
      if (broken_) return errno = EBADMSG, -1;
      if (room == 0) break;
      if (read || given > 0) return given > 0 ? static_cast<ssize_t>(given) : (errno = EAGAIN, -1);
      const ssize_t got = fill(fd);
      if (got <= 0) return got;
      read = true;
    }
  }
  return static_cast<ssize_t>(given);
}

}  // namespace weft::tcp
