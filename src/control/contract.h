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
// listeners, and what a process brings along. Nothing here knows how it is done, so every part of this room
// may include it. Any thread may call, and nothing blocks; handlers run on the control thread or within
// Hub::runInline().
namespace weft::control {

// Both ends compare these before they talk; a `mustMatch` field that differs fails the connection on both
// sides, naming the field and both values.
struct FingerprintField {
  std::string name;
  std::string value;
  bool mustMatch = true;
};
using Fingerprint = std::vector<FingerprintField>;
// The value of a field that this process has no part in: it fits whatever the other has.
constexpr const char* kFitsAll = "*";

// Another process, from its first proof of identity to its death. Every reference keeps the object alive.
class Peer {
 public:
  virtual ~Peer() = default;
  virtual const Incarnation& incarnation() const = 0;
  virtual std::string name() const = 0;  // for people: "rank 3 on node7 pid 4711 (192.0.2.7)"
  virtual bool alive() const = 0;        // one atomic load
  virtual Error reason() const = 0;      // why it is dead; only meaningful when !alive()

  // The process answers pings in time. False also while it is stopped but its kernel still acknowledges.
  virtual bool answers() const = 0;

  // It answers, and after an outage as much time again has passed as that took: what a fabric over sockets
  // held back comes as late, since TCP repeats itself after pauses that double. No peer is blamed for silence
  // before.
  virtual bool settled() const = 0;

  // Something came from this peer over the fabric, or what we wrote arrived there. While that goes on the
  // peer is not given up for the silence of its host on the control link. One relaxed store; to be called now
  // and then, not per message.
  virtual void seenOnFabric(TimePoint when) = 0;

  // Queues one message (at most 64 KiB). Order is kept, a lost link is resumed without loss or duplicates, a
  // dead peer's messages are dropped. `type` is the caller's; values below 16 are the hub's own.
  virtual void send(uint16_t type, Bytes body) = 0;

  virtual const Fingerprint& fingerprint() const = 0;
};
using PeerRef = std::shared_ptr<Peer>;

// Implemented by src/core; all calls come on the control thread or from within runInline(), never two at a
// time, and must be short.
class Handler {
 public:
  virtual ~Handler() = default;
  virtual void onMessage(const PeerRef& peer, uint16_t type, std::span<const std::byte> body) = 0;
  virtual void onPeerDead(const PeerRef& peer, const Error& reason) = 0;  // once a peer
  // Periodic work. Returns how long it may be until the next call; a new message or wake() comes earlier.
  virtual Milliseconds onTick(TimePoint now) = 0;
};

// A connector's authenticated request as the listener sees it.
struct Request {
  PeerRef peer;
  uint64_t id = 0;
  Bytes body;
};

// A place to connect to. Destroying it closes it: calls not yet answered and later ones are refused
// ("listener closed"). Any thread.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual const Handle& handle() const = 0;
  // The next request, nothing yet, or why one failed that proved our secret (fingerprint differs). Every
  // request taken must be answered with Hub::reply or Hub::refuse.
  virtual Result<std::optional<Request>> take() = 0;
};

// An authenticated request to a listener and its one answer. Destroying it before the answer forgets it.
class Call {
 public:
  enum class State : uint8_t { pending, replied, failed };
  virtual ~Call() = default;
  virtual State state() const = 0;             // one atomic load
  virtual PeerRef peer() const = 0;            // set from `replied` on
  virtual const Bytes& replyBody() const = 0;  // when replied
  // When failed. Every call fails by config.connectTimeout, or config.acceptTimeout where its peer is linked.
  virtual Error error() const = 0;
};

struct HubOptions {
  Config config;
  Fingerprint fingerprint;
  std::shared_ptr<Handler> handler;
  const Clock* clock = &Clock::system();
};

}  // namespace weft::control
