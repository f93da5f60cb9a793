// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <string>

#include "src/coll/join_link.h"
#include "src/coll/mesh.h"

// How a rank joins a group at an aggregation daemon: a short talk over a TCP connection that is sealed by the
// secret of both (join_link.h), and a Pipe over the fabric. The TCP connection ends with the verdict; from
// then on the pipe's control link says whether a member is there. The order, once both are proven: request,
// answer (daemon), pipe, verdict (daemon). Any thread; blocks until a deadline.
namespace weft::coll {

// A request to join.
struct JoinRequest {
  uint64_t group = 0;  // Mesh::group(), the same on all ranks
  uint32_t ranks = 0;  // of the whole group
  uint32_t rank = 0;
  uint32_t chunkBytes = 0;  // must be equal for all members
  uint32_t waitMs = 0;      // that the member still waits: it can hear only what the daemon says before
  std::string name;         // for people: logs and status
  HandleBytes handle{};     // the listener that the daemon connects to
  Bytes encode() const;
};

// The daemon's answer.
struct JoinAnswer {
  bool accepted = false;
  std::string reason;    // when it was not accepted
  HandleBytes handle{};  // the daemon's listener, to connect to
  Bytes encode() const;
};

// Asks a daemon about itself; `format` is the daemon's own number (agg::Daemon::Format).
Bytes encodeStatusRequest(uint8_t format);

// The numbers in a result are within their limits.
Result<JoinRequest> decodeJoinRequest(std::span<const std::byte> bytes);
Result<JoinAnswer> decodeJoinAnswer(std::span<const std::byte> bytes);
Result<uint8_t> decodeStatusRequest(std::span<const std::byte> bytes);

// The secret as the settings give it: the text itself, or the first line of the file FILE for "@FILE"; empty:
// there is none. A short one is an error, as who hears a rank join could try them all.
Result<std::string> readSecret(const std::string& setting);

// What the daemon at an address says about itself. Blocks until the answer, at most `timeout`. Errors of
// class config: the secrets differ.
struct StatusQuestion {
  std::string daemon;
  std::string secret;  // as in the settings
  Protection protection;
  uint8_t format = 0;
  Milliseconds timeout{5000};
};
Result<std::string> askStatus(const StatusQuestion& question, const Clock& clock);

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
