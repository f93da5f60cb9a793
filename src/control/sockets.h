// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "src/base/bytes.h"
#include "src/base/config.h"
#include "src/base/fd.h"
#include "src/control/handle.h"
#include "weft/result.h"

// The few socket calls control links need, all nonblocking, CLOEXEC and without SIGPIPE. No state; any
// thread.
namespace weft::control {

// One listening socket a family, all on one port and on every local address.
struct ListeningSockets {
  std::vector<Fd> sockets;
  uint16_t port = 0;
};
Result<ListeningSockets> openListeners();

// Starts connecting. The socket becomes writable when that is decided; connectError() then tells. An errno
// where it failed at once.
struct ConnectStart {
  Fd socket;
  int error = 0;
};
ConnectStart startConnect(const SocketAddress& address);
int connectError(int fd);

// The next connection waiting on `listener`, with its socket ready for use; errnum of EAGAIN when none waits.
Result<Fd> acceptOne(int listener);

enum class Io : uint8_t { ok, again, closed };
struct IoResult {
  Io io = Io::again;
  size_t bytes = 0;
  int error = 0;  // errno when closed by an error, 0 at an orderly end
};
IoResult receiveSome(int fd, std::span<std::byte> into);
IoResult sendSome(int fd, std::span<const std::byte> from);

// Ends the connection for every process that holds a copy of the descriptor (forked children do), then
// closes.
void cut(Fd& fd);

SocketAddress remoteAddress(int fd);

// What the kernel knows about the other kernel (kernel_acks.cc).
struct KernelAcks {
  bool outstanding = false;  // something is not acknowledged: it was sent, or cannot leave this host
  uint64_t bytesAcked = 0;   // grows with every acknowledgement of something new
  Milliseconds sinceAck{0};  // since the last segment with an acknowledgement, new or repeated
};
std::optional<KernelAcks> kernelAcks(int fd);

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

}  // namespace weft::control
