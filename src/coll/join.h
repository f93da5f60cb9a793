// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <string>

#include "src/base/net/proof.h"
#include "src/base/net/sockets.h"
#include "src/coll/mesh.h"

// How a rank, or a daemon further down, joins a group at an aggregation daemon: a short talk over a TCP
// connection, both sides proving that they know the secret, then a Pipe over the fabric. The TCP connection
// stays open as long as the membership lasts: when it ends, so does the group. Any thread; blocks until a
// deadline.
namespace weft::coll {

constexpr size_t kFrameBytes = 2048;  // the longest message of that talk

struct Greeting {
  Nonce nonce{};
  Bytes encode() const;
};

struct JoinRequest {
  Nonce nonce{};
  uint64_t group = 0;
  uint32_t ranks = 0;   // of the whole group
  uint32_t order = 0;   // among the children: the rank, or the lowest one below a daemon
  uint32_t weight = 1;  // ranks below it
  uint32_t local = 0;   // ranks that join this daemon themselves; 0 from a daemon
  bool daemon = false;
  uint32_t chunkBytes = 0;
  std::string name;      // for people
  HandleBytes handle{};  // where the daemon connects to
  Bytes encode(const Key128& key, const Nonce& greeting) const;
};

struct JoinAnswer {
  bool accepted = false;
  std::string reason;
  uint32_t window = 0;  // chunks that may be on their way
  HandleBytes handle{};
  Bytes encode(const Key128& key, const Nonce& request) const;
};

// Asks a daemon about itself; `format` is its own (agg::Daemon::Format).
Bytes encodeStatusRequest(uint8_t format, const Key128& key, const Nonce& greeting);
Result<uint8_t> decodeStatusRequest(std::span<const std::byte> bytes, const Key128& key,
                                    const Nonce& greeting);
Result<std::string> askStatus(const std::string& daemon, const std::string& secret, uint8_t format,
                              const Clock& clock, Milliseconds timeout);

Key128 keyOf(const std::string& secret);
// The secret as the settings give it: itself, or the first line of @FILE.
Result<std::string> readSecret(const std::string& setting);

Result<Greeting> decodeGreeting(std::span<const std::byte> bytes);
// A wrong proof is an error that says so.
Result<JoinRequest> decodeJoinRequest(std::span<const std::byte> bytes, const Key128& key,
                                      const Nonce& greeting);
Result<JoinAnswer> decodeJoinAnswer(std::span<const std::byte> bytes, const Key128& key,
                                    const Nonce& request);

// The message behind its length, as it goes over the connection.
constexpr size_t kLengthBytes = sizeof(uint32_t);
Bytes framed(const Bytes& message);
// The length that stands before a message; an error where it is too long to be one.
Result<size_t> frameLength(std::span<const std::byte> bytes, size_t most = kFrameBytes);
Status writeFrame(const Fd& fd, const Bytes& message, const Patience& patience);
Result<Bytes> readFrame(const Fd& fd, const Patience& patience, size_t most = kFrameBytes);
// "HOST:PORT" or "[ADDRESS]:PORT".
Result<Fd> dialDaemon(const std::string& address, const Patience& patience);

// A connection in both directions with the other end of the talk: connects to its handle, and takes the first
// connection that comes to the listener.
Result<std::unique_ptr<Pipe>> openPipe(const core::ContextRef& context, int device,
                                       core::ListenComm& listener, HandleBytes peer, std::string name,
                                       Patience& patience);

struct Membership {
  // Says goodbye, and nothing more is said by this end. Does not wait.
  void part();
  // The same, and waits a second at most until the daemon has closed its end: it has receives posted that
  // nothing will come for. Before the pipe goes.
  void leave(const Clock& clock);
  bool linked() const;  // the daemon has not closed it, nor died

  Fd link;  // after the pipe in destruction order: the daemon hears of a close by the pipe first
  std::unique_ptr<Pipe> pipe;
  uint32_t window = 0;
  std::string daemon;  // its address
};

struct JoinOptions {
  core::ContextRef context;
  int device = 0;
  std::string daemon;
  std::string secret;  // as in the settings
  JoinRequest request;
  Milliseconds timeout{20000};
};
Result<Membership> joinDaemon(JoinOptions options);

}  // namespace weft::coll
