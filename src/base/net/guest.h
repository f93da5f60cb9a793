// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>

#include "src/base/fnv.h"
#include "src/base/net/sockets.h"

// A connection that came in and has to introduce itself, in messages of known sizes, before a deadline. The
// owner reads a message and decides: it expects the next message, takes the socket over, or lets the guest
// go. Nothing is read beyond the expected message, as the bytes behind it belong to the next owner of the
// socket. Used by one thread.
namespace weft {

class Guest {
 public:
  enum class Heard : uint8_t {
    nothing,  // more has to come
    message,  // bytes() holds the expected message
    gone,     // the other end hung up, or its time is over
  };

  Guest(Fd socket, TimePoint deadline, size_t expected) : socket_(std::move(socket)), deadline_(deadline) {
    expect(expected);
  }

  Heard hear(TimePoint now) {
    if (now >= deadline_) return Heard::gone;
    const Io io = reader_.fill(socket_.get()).io;
    return io == Io::ok ? Heard::message : io == Io::again ? Heard::nothing : Heard::gone;
  }
  std::span<const std::byte> bytes() const { return reader_.bytes(); }
  void expect(size_t bytes) { reader_.expect(bytes); }

  // Sends everything at once: a message to a guest fits into a fresh socket's buffer. False: the guest is
  // gone, or takes nothing.
  bool say(std::span<const std::byte> bytes) { return sendSome(socket_.get(), bytes).bytes == bytes.size(); }

  TimePoint deadline() const { return deadline_; }
  void allowUntil(TimePoint deadline) { deadline_ = deadline; }
  Fd& socket() { return socket_; }
  const Fd& socket() const { return socket_; }

 private:
  Fd socket_;
  TimePoint deadline_;
  ExactReader reader_;
};

// The guest that leaves when there are too many: of the address that has most of them, the one that came
// first. So a crowd from elsewhere does not push out a peer that is about to prove itself. `addressOf` gives
// a guest's address, or null for one that stays. The guests are in the order in which they came.
template <class Iterator, class AddressOf>
Iterator oldestOfLargestCrowd(Iterator first, Iterator last, AddressOf addressOf) {
  std::array<uint32_t, 256> crowds{};  // by a hash of the address: two that share a place count as one
  const auto crowdOf = [&](const SocketAddress& address) -> uint32_t& {
    const auto ip = address.ip();
    return crowds[fnv1a({reinterpret_cast<const char*>(ip.data()), ip.size()}) % crowds.size()];
  };
  for (auto one = first; one != last; ++one)
    if (const SocketAddress* address = addressOf(*one)) crowdOf(*address)++;
  auto leaves = last;
  uint32_t most = 0;
  for (auto one = first; one != last; ++one) {
    const SocketAddress* address = addressOf(*one);
    if (!address || crowdOf(*address) <= most) continue;
    most = crowdOf(*address);
    leaves = one;
  }
  return leaves;
}

}  // namespace weft
