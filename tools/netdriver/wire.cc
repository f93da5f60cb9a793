// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/netdriver/wire.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include "src/base/printable.h"
#include "tools/netdriver/speaker.h"

namespace weft::netdriver {

namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kMessage = 1;
constexpr uint32_t kAlive = 2;
constexpr uint32_t kLastWords = 3;
constexpr size_t kMostWords = 2000;
constexpr Milliseconds kSlice{500};
constexpr Milliseconds kHostSilent{3000};  // what nothing was acknowledged for is not there
constexpr Milliseconds kPartial{10000};    // for the rest of a message that has begun

long long secondsOf(Clock::duration time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time).count();
}

// A peer's kernel that acknowledges nothing ends the connection; a call that is stuck half way ends, too.
void setLimits(int fd, Milliseconds silence) {
  const timeval most{kPartial.count() / 1000, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most));
  const auto patience = std::max<Milliseconds>(silence, kPartial);
  const timeval toSend{patience.count() / 1000, 0};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &toSend, sizeof(toSend));
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (silence.count() == 0) return;
  const auto unacknowledged = static_cast<unsigned>(silence.count());
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged, sizeof(unacknowledged));
}

}  // namespace

Wire::Wire(Fd fd, std::string peer, Milliseconds silence)
    : fd_(std::move(fd)), peer_(std::move(peer)), silence_(silence) {
  setLimits(fd_.get(), silence_);
  begin();
}

// How a connection ends says who is to blame for it: nobody, the process, or its host.
Error Wire::broken(const char* how) const {
  if (errno == ETIMEDOUT)
    return Error(Code::remote, kRendezvous, peer_ + " is cut off: its host acknowledges nothing");
  if (errno == EAGAIN || errno == EWOULDBLOCK)
    return Error(Code::timeout, kRendezvous, peer_ + " " + how + " in time");
  return Error(Code::remote, kRendezvous, peer_ + " closed its connection; it may have failed", errno);
}

// Sending:

Status Wire::sendAll(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return broken("takes no data");
    bytes = bytes.subspan(static_cast<size_t>(sent));
  }
  return {};
}

Status Wire::send(uint32_t kind, std::span<const std::byte> bytes) {
  const Head head{kind, static_cast<uint32_t>(bytes.size())};
  const std::lock_guard lock(sending_);
  TRY(sendAll(std::as_bytes(std::span(&head, 1))));
  return sendAll(bytes);
}

Status Wire::send(std::span<const std::byte> bytes) {
  return send(kMessage, bytes);
}

// The sending call says it as well. A connection that takes nothing is seen by who waits on it.
void Wire::sayAlive() {
  const std::unique_lock lock(sending_, std::try_to_lock);
  if (!lock || lastWordsSaid_) return;
  const Head head{kAlive, 0};
  const auto bytes = std::as_bytes(std::span(&head, 1));
  const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent > 0 && static_cast<size_t>(sent) < bytes.size())
    (void)sendAll(bytes.subspan(static_cast<size_t>(sent)));
}

void Wire::sayLastWords(std::string_view why) {
  const std::unique_lock lock(sending_, std::try_to_lock);
  if (!lock || lastWordsSaid_) return;
  lastWordsSaid_ = true;
  why = why.substr(0, kMostWords);
  const Head head{kLastWords, static_cast<uint32_t>(why.size())};
  std::vector<std::byte> bytes(sizeof(head) + why.size());
  std::memcpy(bytes.data(), &head, sizeof(head));
  std::memcpy(bytes.data() + sizeof(head), why.data(), why.size());
  [[maybe_unused]] const ssize_t ignored =
      ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

// Receiving:

Status Wire::receiveAll(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = ::recv(fd_.get(), bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) {
      errno = 0;
      return broken("");
    }
    if (got < 0) return broken("did not send the rest of a message");
    bytes = bytes.subspan(static_cast<size_t>(got));
  }
  return {};
}

void Wire::begin() {
  heard_ = Clock::now();
  complained_ = false;
}

Result<std::optional<std::vector<std::byte>>> Wire::take(size_t most) {
  Head head;
  TRY(receiveAll(std::as_writable_bytes(std::span(&head, 1))));
  begin();
  if (head.kind == kAlive) return std::optional<std::vector<std::byte>>();
  if ((head.kind != kMessage && head.kind != kLastWords) ||
      head.bytes > (head.kind == kMessage ? most : kMostWords))
    return Error(Code::remote, kRendezvous, peer_ + " sends what is no message of this version");
  std::vector<std::byte> bytes(head.bytes);
  TRY(receiveAll(bytes));
  if (head.kind == kMessage) return std::optional(std::move(bytes));
  const std::string words(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return Error(Code::remote, kRendezvous, printable(words));
}

namespace {

// The other end as our kernel sees it.
struct Signs {
  Milliseconds silent{0};   // since anything came, also while nobody waited for it
  bool hostAnswers = true;  // its kernel has acknowledged what we sent lately
};

Signs signsOf(int fd) {
  tcp_info info{};
  socklen_t length = sizeof(info);
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return {};
  const bool answers =
      info.tcpi_unacked == 0 || info.tcpi_last_ack_recv < static_cast<uint32_t>(kHostSilent.count());
  return {Milliseconds(info.tcpi_last_data_recv), answers};
}

}  // namespace

// It is silent since it sent something last, not since we look. Yet we look for a quarter of the time at
// least: after a stop of the whole job all have been silent.
Status Wire::look() {
  if (silence_.count() == 0) return {};
  const auto waited = std::chrono::duration_cast<Milliseconds>(Clock::now() - heard_);
  if (waited < silence_ / 4) return {};
  const Signs signs = signsOf(fd_.get());
  const Milliseconds silent = std::max(waited, signs.silent);
  const char* of =
      signs.hostAnswers ? "though its host does: is it stopped?" : "nor does its host: is it cut off?";
  if (silent >= silence_)
    return Error(Code::timeout, kRendezvous,
                 peer_ + " has not answered for " + std::to_string(secondsOf(silent)) + " s, " + of);
  if (complained_) return {};
  complained_ = true;
  std::fprintf(stderr, "%sweft: %s: %s has not answered for %lld s, %s It is given up after %lld s\n",
               speaker().c_str(), kRendezvous, peer_.c_str(), secondsOf(silent), of, secondsOf(silence_));
  return {};
}

Result<std::vector<std::byte>> Wire::receiveAny(Moment deadline, size_t most) {
  begin();
  while (true) {
    const auto left = std::chrono::ceil<Milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return Error(Code::timeout, kRendezvous, "no answer from " + peer_);
    pollfd wait{fd_.get(), POLLIN, 0};
    const int ready = ::poll(&wait, 1, static_cast<int>(std::min(left, kSlice).count()));
    if (ready <= 0) {
      TRY(look());
      continue;
    }
    TRY(auto message, take(most));
    if (message) return std::move(*message);
  }
}

Status Wire::receive(std::span<std::byte> bytes, Moment deadline) {
  TRY(const auto message, receiveAny(deadline, bytes.size()));
  if (message.size() != bytes.size())
    return Error(Code::remote, kRendezvous,
                 peer_ + " sent another message than was due; is it of another version?");
  std::copy(message.begin(), message.end(), bytes.begin());
  return {};
}

}  // namespace weft::netdriver
