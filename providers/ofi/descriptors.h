// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "src/base/bytes.h"

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

// The sockets of connections between one of `own` and one of `peers`, accepted or dialled: made in the middle
// of a poll, so they are found by their addresses. Closed on exec from here on.
void closeConnectionsOnExec(std::span<const Bytes> own, std::span<const Bytes> peers);

// Finds this process's sockets that listen on `names` and bounds how long a read from a connection they
// accept may block. The number of sockets found.
//
// libfabric's net and tcp read a new connection's first message with a blocking recv in the middle of our
// poll: a stranger who sends three bytes and waits would hold the engine for ever. Accepted sockets inherit
// the listener's receive timeout, and libfabric drops those that run into it.
size_t protectListeners(std::span<const Bytes> names);

// Stops this process's listeners on `names`, and ends the connections they accepted that have not said a
// word; how many of those there were.
//
// libfabric 1.17 forgets such a connection when the endpoint it came to is closed, but goes on watching it,
// and crashes when it speaks or ends. Before a close they have to end, and be polled once.
size_t turnSilentAway(std::span<const Bytes> names);

}  // namespace weft::ofi
