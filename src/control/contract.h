// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/base/bytes.h"
#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/control/handle.h"
#include "weft/result.h"

// The promises of control links to other rooms, apart from the Hub that hands them out: peers, calls,
// listeners, and the description of this process. Nothing here depends on how they are kept, so every part of
// this room may include it. Any thread may call, and nothing blocks; handlers run on the control thread or
// within Hub::runInline().
namespace weft::control {

// A field of the description that both ends compare before they talk. A `mustMatch` field that differs fails
// the connection on both sides; the error names the field and both values.
struct FingerprintField {
  std::string name;
  std::string value;
  bool mustMatch = true;
};
using Fingerprint = std::vector<FingerprintField>;
// The value of a field in which this process has no part. It fits any value of the other process.
constexpr const char* kFitsAll = "*";

// How long after an outage TCP may be silent, in lengths of the outage. The first repetition after it comes
// when as much time again has passed at the latest. A kernel that also paces what it repeats (BBR) was seen
// to need three times as much.
constexpr int kSettling = 3;

// Another process, from its first proof of identity to its death. A reference keeps the object alive, also
// after the death and after the hub's end.
class Peer {
 public:
  virtual ~Peer() = default;
  virtual const Incarnation& incarnation() const = 0;
  virtual std::string name() const = 0;  // for people: "rank 3 on node7 pid 4711 (192.0.2.7)"
  virtual bool alive() const = 0;        // one atomic load
  virtual Error reason() const = 0;      // why it is dead; meaningful only when !alive()

  // True: the process answers pings in time. False: it does not, also where it is stopped and its kernel
  // still acknowledges.
  virtual bool answers() const = 0;

  // True: the process answers, and after an outage kSettling times as long has passed. What a fabric over
  // sockets held back comes that late, since TCP repeats itself after pauses that double (RFC 6298, 5.5).
  // No peer is blamed for silence before it is settled.
  virtual bool settled() const = 0;

  // Tells that something came from this peer over the fabric, or that a write of ours arrived there. While
  // that goes on, the peer is not given up for the silence of its host on the control link. It costs one
  // relaxed store; callers call it now and then, not for each message.
  virtual void seenOnFabric(TimePoint when) = 0;

  // Queues a message of at most 64 KiB. The order is kept; a lost link is resumed without loss or duplicates;
  // messages to a dead peer are dropped. `type` is the caller's own; values below 16 belong to the hub.
  virtual void send(uint16_t type, Bytes body) = 0;

  virtual const Fingerprint& fingerprint() const = 0;
};
using PeerRef = std::shared_ptr<Peer>;

// Implemented by src/core. All calls come on the control thread or from within runInline(), never two at a
// time, and have to be short.
class Handler {
 public:
  virtual ~Handler() = default;
  virtual void onMessage(const PeerRef& peer, uint16_t type, std::span<const std::byte> body) = 0;
  // Called once for each peer, after its last message.
  virtual void onPeerDead(const PeerRef& peer, const Error& reason) = 0;
  // Periodic work. Returns the time until the next call at the latest; a new message or wake() brings it
  // earlier.
  virtual Milliseconds onTick(TimePoint now) = 0;
};

// A connector's authenticated request, as the listener sees it.
struct Request {
  PeerRef peer;
  uint64_t id = 0;  // of this process; reply() and refuse() find the request by it
  Bytes body;
};

// A place to connect to. Destroying it closes it: calls that are not answered yet, and later ones, are
// refused ("listener closed"). Any thread.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual const Handle& handle() const = 0;
  // Returns the next request, or none yet. An error: a connection that had proven our secret failed (the
  // fingerprint differs, or the peer died). Every request that was taken must be answered with Hub::reply or
  // Hub::refuse.
  virtual Result<std::optional<Request>> take() = 0;
};

// An authenticated request to a listener, and its one answer. Destroying the call before the answer forgets
// it.
class Call {
 public:
  enum class State : uint8_t { pending, replied, failed };
  virtual ~Call() = default;
  virtual State state() const = 0;             // one atomic load
  virtual PeerRef peer() const = 0;            // set from `replied` on
  virtual const Bytes& replyBody() const = 0;  // when replied
  // In state failed. Every call fails by config.connectTimeout, or by config.acceptTimeout where its peer is
  // linked.
  virtual Error error() const = 0;
};

// The clock has to outlive the hub. A null handler: messages and ticks are dropped.
struct HubOptions {
  Config config;
  Fingerprint fingerprint;
  std::shared_ptr<Handler> handler;
  const Clock* clock = &Clock::system();
};

}  // namespace weft::control
