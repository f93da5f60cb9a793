// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <optional>
#include <span>
#include <string>

#include "src/base/crypto/noise.h"
#include "src/base/crypto/protection.h"
#include "src/base/crypto/seal.h"
#include "src/base/fd.h"
#include "src/coll/pipe.h"

// The connection by which a rank joins an aggregation daemon, or asks for its status. The rank begins a Noise
// handshake by the daemon's secret, and the daemon's message of it proves the daemon. All that follows is
// sealed, and by it the rank is proven. A stranger hears one constant message, which says nothing about the
// secret. Layout: docs/collectives.md. Values, each with one owner; any thread.
namespace weft::coll {

// In front of both messages of the handshake, and of a refusal: the length, the magic, the version, who
// speaks, and a zero byte.
constexpr size_t kStartBytes = 4 + 4 + 2 + 1 + 1;
constexpr size_t kOpeningBytes = kStartBytes + kNoiseBytes;  // of the rank's first message
constexpr size_t kLengthBytes = 4;                           // in front of a sealed message
constexpr size_t kMessageBytes = 2048;                       // the longest sealed message, but for a status

// An error of this talk, and one of the sockets that becomes one.
Error joinError(const std::string& why, Code code = Code::remote);
Error joinError(const Error& error);

// What both ends make the handshake with. The secret is that of the daemon; the job's is mixed in.
Key256 joinKeyOf(const Protection& protection, const std::string& secret);

// Seals what one end says, and opens what it hears, each message once and in order.
class JoinSeal {
 public:
  explicit JoinSeal(const NoiseKeys& keys) : out_(keys.send), in_(keys.receive) {}
  // The message as it is on the wire: its length, and the sealed bytes.
  Bytes close(const Bytes& message);
  // Of what follows the length. Nothing: the other end did not send it as its next message.
  std::optional<Bytes> open(std::span<const std::byte> rest);

 private:
  Seal out_;
  Seal in_;
};
// How many bytes follow those of a length. An error where the message is longer than `most`, so that nobody
// makes us reserve memory.
Result<size_t> restOf(std::span<const std::byte> length, size_t most = kMessageBytes);

// The daemon's side of the handshake, as a function of the bytes that came: nothing waits.
struct Met {
  Bytes answer;
  JoinSeal seal;
};
// An error: whoever said this is no rank of ours, or has another secret or version. It is for the log; what
// is sent is refusal().
Result<Met> meetRank(std::span<const std::byte> opening, const Key256& key);
Bytes refusal();

// A connection whose ends have met. Each call blocks until a deadline.
class JoinLink {
 public:
  JoinLink(Fd fd, const JoinSeal& seal) : fd_(std::move(fd)), seal_(seal) {}
  int fd() const { return fd_.get(); }
  Status say(const Bytes& message, const Patience& patience);
  Result<Bytes> hear(const Patience& patience, size_t most = kMessageBytes);

 private:
  Fd fd_;
  JoinSeal seal_;
};

// Resolves and connects. `address`: "HOST:PORT" or "[ADDRESS]:PORT".
Result<Fd> dialDaemon(const std::string& address, const Patience& patience);
// The rank's side of the handshake over a fresh connection. An error of class config: the secrets differ.
Result<JoinLink> meetDaemon(Fd fd, const Key256& key, const Patience& patience);

}  // namespace weft::coll
