// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "src/base/bytes.h"

// Good manners for the descriptors that libfabric opens in an application's process. libfabric makes them
// without FD_CLOEXEC, so a program started by a training job would inherit our connections. Control path; any
// thread. Addresses are sockaddrs as fi_getname returns them.
namespace weft::ofi {

// While an object lives, libfabric sets something up; its destructor marks the descriptors that were opened
// meanwhile as closed on exec. Another thread may open a descriptor at the same moment, so only kinds that
// libfabric makes are touched.
class ClosedOnExec {
 public:
  ClosedOnExec();
  ~ClosedOnExec();
  ClosedOnExec(const ClosedOnExec&) = delete;
  ClosedOnExec& operator=(const ClosedOnExec&) = delete;

 private:
  std::vector<int> before_;  // ascending
};

// Marks the sockets of connections between an address of `own` and one of `peers` as closed on exec. Accepted
// and dialled ones are made in the middle of a poll, so they are found by their addresses.
void closeConnectionsOnExec(std::span<const Bytes> own, std::span<const Bytes> peers);

// Finds this process's sockets that listen on `names`, and bounds the time that a read from an accepted
// connection may block. Returns the number of sockets found.
//
// libfabric's net and tcp read the first message of a new connection with a blocking recv in the middle of
// our poll: a stranger that sends three bytes and waits would hold the engine for ever. Accepted sockets
// inherit the listener's receive timeout (socket(7), SO_RCVTIMEO), and libfabric drops a connection that runs
// into it.
size_t protectListeners(std::span<const Bytes> names);

// Stops this process's listeners on `names`, and ends the accepted connections that have not sent a byte.
// Returns the number of those connections.
//
// libfabric 1.17 forgets such a connection when its endpoint is closed, but goes on watching it, and crashes
// when the connection sends or ends. So before a close these connections have to end and be polled once.
size_t turnSilentAway(std::span<const Bytes> names);

}  // namespace weft::ofi
