// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <span>
#include <vector>

// Manners for the descriptors that libfabric opens in somebody else's process: it makes them without
// FD_CLOEXEC, so a program started from a training job would inherit our connections. Control path; any
// thread. Addresses are sockaddrs as fi_getname gives them.
namespace weft::ofi {

// While this lives, libfabric sets something up; at its end, what it opened meanwhile is closed on exec.
// Another thread may open a descriptor at the same moment; only kinds that libfabric makes are touched.
class ClosedOnExec {
 public:
  ClosedOnExec();
  ~ClosedOnExec();
  ClosedOnExec(const ClosedOnExec&) = delete;
  ClosedOnExec& operator=(const ClosedOnExec&) = delete;

 private:
  std::vector<int> before_;  // ascending
};

// The sockets of connections between `own` and `peer`, accepted or dialled: made in the middle of a poll, so
// they are found by their addresses. Closed on exec from here on.
void closeConnectionsOnExec(std::span<const std::byte> own, std::span<const std::byte> peer);

// Finds this process's socket that listens on `name` and bounds how long a read from a connection it accepts
// may block. False when there is no such socket.
//
// libfabric's net and tcp read a new connection's first message with a blocking recv in the middle of our
// poll: a stranger who sends three bytes and waits would hold the engine for ever. Accepted sockets inherit
// the listener's receive timeout, and libfabric drops those that run into it.
bool protectListener(std::span<const std::byte> name);

}  // namespace weft::ofi
