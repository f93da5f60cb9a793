// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <span>

#include "src/base/bytes.h"
#include "src/base/clock.h"
#include "src/base/fd.h"
#include "src/base/net/address.h"

// The TCP sockets of this house: every one is non-blocking, closed by exec and in forked children, sends
// small messages at once and raises no SIGPIPE. Nothing here waits but what is handed a Deadline. No state;
// any thread.
namespace weft {

// How a connection is made beyond what all have.
struct SocketTuning {
  // Probes keep a quiet connection known to what lies between the hosts. The kernel gives a silent host up
  // after twenty minutes only: a connection must outlast every outage that WEFT_KERNEL_TIMEOUT forgives.
  bool keepAlive = false;
  int trafficClass = -1;  // -1: the system's
};

// Errors name the address, and carry the errno of the call that failed; `purpose` is their operation. A
// socket of both families hears IPv4 as well where it is on every address of IPv6.
enum class Hears : uint8_t { itsFamily, bothFamilies };
Result<Fd> listenOn(const SocketAddress& at, const char* purpose, Hears hears = Hears::itsFamily);

// Starts connecting. The socket becomes writable when that is decided; connectError() then tells. `from`: the
// address to leave by, where that matters.
Result<Fd> startConnecting(const SocketAddress& to, const SocketTuning& tuning = {},
                           const SocketAddress* from = nullptr);
int connectError(int fd);

// The next connection that waits at `listener`; an error of EAGAIN when none waits.
Result<Fd> acceptOne(int listener, const SocketTuning& tuning = {});

void setTrafficClass(int fd, int family, int trafficClass);
// For connections within one host that carry much: see there.
void keepShort(int fd);

SocketAddress localAddress(int fd);
SocketAddress remoteAddress(int fd);  // length 0: the connection is gone already

// Ends the connection for every process that holds a copy of the descriptor (forked children do), then
// closes.
void cut(Fd& fd);

// True while the other end may still say something: it has neither closed the connection nor died.
bool isLinked(int fd);

enum class Io : uint8_t { ok, again, closed };
struct IoResult {
  Io io = Io::again;
  size_t bytes = 0;
  int error = 0;  // errno when closed by an error, 0 at an orderly end
};
IoResult receiveSome(int fd, std::span<std::byte> into);
IoResult sendSome(int fd, std::span<const std::byte> from);

// Collects exactly as many bytes as were asked for and leaves the rest in the socket.
class ExactReader {
 public:
  void expect(size_t bytes);
  IoResult fill(int fd);  // ok: all here; again: more needed
  std::span<const std::byte> bytes() const { return buffer_; }

 private:
  Bytes buffer_;
  size_t have_ = 0;
};

// For callers with time: each returns when all is done, the connection broke, or the deadline has passed.

struct Deadline {
  const Clock& clock;
  TimePoint at;
  bool isOver() const { return clock.now() >= at; }
};

// The first of the addresses that answers; else why the last one did not.
Result<Fd> connectToOne(const std::vector<SocketAddress>& addresses, const Deadline& deadline);
Status sendAll(int fd, std::span<const std::byte> bytes, const Deadline& deadline);
Status receiveAll(int fd, ExactReader& reader, const Deadline& deadline);  // what the reader expects

}  // namespace weft
