// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <span>

#include "src/base/bytes.h"
#include "src/base/clock.h"
#include "src/base/fd.h"
#include "src/base/net/address.h"
#include "src/base/net/port_range.h"

// The TCP sockets of weft. Every one is non-blocking, is closed by exec and in forked children, sends small
// messages at once, and raises no SIGPIPE. A function waits only if it takes a Deadline. No state; any
// thread.
namespace weft {

// Options of a connection beyond those that all have.
struct SocketTuning {
  // Probes keep a quiet connection known to the boxes between the hosts. The kernel gives a silent host up
  // only after twenty minutes: a connection must outlast every outage that WEFT_KERNEL_TIMEOUT forgives.
  bool keepAlive = false;
  int trafficClass = -1;  // -1: the system's default
};

// Errors name the address and carry the errno of the failed call; `purpose` is their operation. A socket for
// both families on every IPv6 address hears IPv4 as well.
enum class Hears : uint8_t { itsFamily, bothFamilies };
// Where `at` has no port, it is the kernel's choice or, from a random one on, the first of `ports` that is
// free.
Result<Fd> listenOn(const SocketAddress& at, const char* purpose, Hears hears = Hears::itsFamily,
                    const PortRange& ports = {});

// Starts connecting. The socket becomes writable when the outcome is known, which connectError() returns.
// `from`: the local address to use, where that matters.
Result<Fd> startConnecting(const SocketAddress& to, const SocketTuning& tuning = {},
                           const SocketAddress* from = nullptr);
int connectError(int fd);

// The next connection that waits at `listener`. An error of EAGAIN: none waits.
Result<Fd> acceptOne(int listener, const SocketTuning& tuning = {});

void setTrafficClass(int fd, int family, int trafficClass);
// Bounds the send buffer, for connections within a host that carry much (see the function).
void keepShort(int fd);

SocketAddress localAddress(int fd);
SocketAddress remoteAddress(int fd);  // length 0: the connection has gone already

// Ends the connection for every process that has a copy of the descriptor, as forked children do, and then
// closes it.
void cut(Fd& fd);

// True while the other end may still say something: it has neither closed the connection nor died.
bool isLinked(int fd);

enum class Io : uint8_t { ok, again, closed };
struct IoResult {
  Io io = Io::again;
  size_t bytes = 0;
  int error = 0;  // errno when closed by an error, 0 at an orderly end
};
// Never block. `ok` with fewer bytes than asked for is possible.
IoResult receiveSome(int fd, std::span<std::byte> into);
IoResult sendSome(int fd, std::span<const std::byte> from);

// Collects exactly the expected number of bytes, and leaves further bytes in the socket.
class ExactReader {
 public:
  void expect(size_t bytes);
  IoResult fill(int fd);  // ok: all bytes are here; again: more are needed
  std::span<const std::byte> bytes() const { return buffer_; }

 private:
  Bytes buffer_;
  size_t have_ = 0;
};

// For callers with time. Each returns when everything is done, the connection broke, or the deadline has
// passed.

struct Deadline {
  const Clock& clock;
  TimePoint at;
  bool isOver() const { return clock.now() >= at; }
};

// Tries the addresses in their order, and returns the first connection; else the error of the last address.
// An address that neither answers nor refuses takes the rest of the time.
Result<Fd> connectToOne(const std::vector<SocketAddress>& addresses, const Deadline& deadline);
Status sendAll(int fd, std::span<const std::byte> bytes, const Deadline& deadline);
// The bytes that the reader expects.
Status receiveAll(int fd, ExactReader& reader, const Deadline& deadline);

}  // namespace weft
