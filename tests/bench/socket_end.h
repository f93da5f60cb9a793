// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <sys/uio.h>
#include <vector>

#include "src/base/fd.h"
#include "tests/bench/companion.h"
#include "tests/bench/end.h"
#include "tools/netdriver/comm.h"

// Plain non-blocking sockets without any protocol: the baseline where there is no card. A channel is a
// connection of its own, a message its length and its bytes in one call, received by one call into its place,
// since the receiver knows what comes. What does not fit into the socket goes on with the next poll.
namespace weft::bench {

class SocketEnd final : public End {
 public:
  SocketEnd(const Shape& shape, const Companion& companion);

  bool send(size_t channel, size_t bytes) override;
  void poll() override;
  std::string describe() const override { return "plain sockets over 127.0.0.1"; }

 private:
  struct Transfer {
    // In front of the bytes. Behind 8 of them the kernel's copies of large messages were seen to take twice
    // as long, as source and target differ by so little.
    std::array<uint64_t, 4> prefix{};
    size_t done = 0;  // of both
  };
  struct Channel {
    Fd fd;
    Transfer sending, receiving;
    size_t bytes = 0;  // of the messages that wait to be sent
  };

  void meet(const Companion& companion);
  void pushOut(size_t index);
  void pullIn(size_t index);
  static size_t parts(Transfer& transfer, std::byte* data, size_t bytes, iovec* out);

  netdriver::HostBuffer source_, sink_;
  std::vector<Channel> channels_;
};

}  // namespace weft::bench
