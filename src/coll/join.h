// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <string>

#include "src/base/net/proof.h"
#include "src/base/net/sockets.h"
#include "src/coll/mesh.h"

// How a rank joins a group at an aggregation daemon. First comes a short talk over
// a TCP connection, in which both sides prove that they know the secret; then a Pipe over the fabric. The TCP
// connection ends with the verdict; from then on the pipe's control link says whether a member is there.
// The order: greeting (daemon), request, answer (daemon), pipe, verdict (daemon). Any thread; blocks until a
// deadline.
namespace weft::coll {

constexpr size_t kFrameBytes = 2048;  // the longest message of that talk, without its length

// The daemon's first message: its nonce, which the proof of the request covers.
struct Greeting {
  Nonce nonce{};  // random, fresh for each connection
  Bytes encode() const;
};

// A request to join. Its proof is over the greeting's nonce, so a recorded request is worth nothing.
struct JoinRequest {
  Nonce nonce{};       // covered by the proof of the answer
  uint64_t group = 0;  // Mesh::group(), the same on all ranks
  uint32_t ranks = 0;  // of the whole group
  uint32_t rank = 0;
  uint32_t chunkBytes = 0;  // must be equal for all members
  uint32_t waitMs = 0;      // that the member still waits: it can hear only what the daemon says before
  std::string name;         // for people: logs and status
  HandleBytes handle{};     // the listener that the daemon connects to
  Bytes encode(const Key128& key, const Nonce& greeting) const;
};

// The daemon's answer. Its proof is over the request's nonce: it shows that the daemon knows the secret, too.
struct JoinAnswer {
  bool accepted = false;
  std::string reason;    // when it was not accepted
  HandleBytes handle{};  // the daemon's listener, to connect to
  Bytes encode(const Key128& key, const Nonce& request) const;
};

// Asks a daemon about itself; `format` is the daemon's own number (agg::Daemon::Format).
Bytes encodeStatusRequest(uint8_t format, const Key128& key, const Nonce& greeting);
Result<uint8_t> decodeStatusRequest(std::span<const std::byte> bytes, const Key128& key,
                                    const Nonce& greeting);
// Blocks until the answer, at most `timeout`. Errors of class config: the secrets differ.
Result<std::string> askStatus(const std::string& daemon, const std::string& secret, uint8_t format,
                              const Clock& clock, Milliseconds timeout);

// The key that proofs are made with: a hash of the secret.
Key128 keyOf(const std::string& secret);
// The secret as the settings give it: the text itself, or the first line of the file FILE for "@FILE".
Result<std::string> readSecret(const std::string& setting);

Result<Greeting> decodeGreeting(std::span<const std::byte> bytes);
// A wrong proof is an error that names the setting. The numbers in the result are within their limits.
Result<JoinRequest> decodeJoinRequest(std::span<const std::byte> bytes, const Key128& key,
                                      const Nonce& greeting);
Result<JoinAnswer> decodeJoinAnswer(std::span<const std::byte> bytes, const Key128& key,
                                    const Nonce& request);

// A message with its length in front, as it goes over the connection.
constexpr size_t kLengthBytes = sizeof(uint32_t);
Bytes framed(const Bytes& message);
// The length in front of a message. An error where it is over `most`, so that a stranger cannot make us
// reserve memory.
Result<size_t> frameLength(std::span<const std::byte> bytes, size_t most = kFrameBytes);
Status writeFrame(const Fd& fd, const Bytes& message, const Patience& patience);
Result<Bytes> readFrame(const Fd& fd, const Patience& patience, size_t most = kFrameBytes);
// Resolves and connects. `address`: "HOST:PORT" or "[ADDRESS]:PORT".
Result<Fd> dialDaemon(const std::string& address, const Patience& patience);

// A connection in both directions with the other end of the talk. It connects to the handle `peer`, and takes
// the first connection that comes to the listener.
Result<std::unique_ptr<Pipe>> openPipe(const core::ContextRef& context, int device,
                                       core::ListenComm& listener, HandleBytes peer, std::string name,
                                       Patience& patience);

// A rank's place in a group at a daemon. Closing the pipe ends it; the daemon then breaks or ends the group.
struct Membership {
  std::unique_ptr<Pipe> pipe;
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
