// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <linux/tcp.h>  // knows bytes_acked; excludes <netinet/tcp.h>, which does not
#include <netinet/in.h>
#include <sys/socket.h>

#include "src/control/sockets.h"

namespace weft::control {

std::optional<KernelAcks> kernelAcks(int fd) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return std::nullopt;
  return KernelAcks{info.tcpi_unacked > 0, info.tcpi_bytes_acked, Milliseconds(info.tcpi_last_ack_recv)};
}

}  // namespace weft::control
