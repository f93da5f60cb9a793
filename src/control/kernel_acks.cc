// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/control/kernel_acks.h"

#include <algorithm>
#include <cstddef>
#include <linux/tcp.h>  // knows bytes_acked; excludes <netinet/tcp.h>, which does not
#include <netinet/in.h>
#include <sys/socket.h>

// The reading of TCP_INFO.
namespace weft::control {

namespace {

// True: data waits here although the other side has room for it, so this host drops our packets, or has no
// way to send them. `length` is the part of the structure that the kernel filled in. A kernel before 5.4 does
// not tell the window; it gets the benefit of the doubt.
bool heldHere(const tcp_info& info, size_t length) {
  if (length < offsetof(tcp_info, tcpi_snd_wnd) + sizeof info.tcpi_snd_wnd) return false;
  return info.tcpi_notsent_bytes > 0 &&
         info.tcpi_snd_wnd >= std::min(info.tcpi_notsent_bytes, info.tcpi_snd_mss);
}

}  // namespace

std::optional<KernelAcks> kernelAcks(int fd) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return std::nullopt;
  // The kernel probes a peer whose window is closed. A second probe means that the first was not answered.
  const bool probing = info.tcpi_probes >= 2;
  const bool outstanding = info.tcpi_unacked > 0 || probing || heldHere(info, length);
  return KernelAcks{outstanding, info.tcpi_bytes_acked, Milliseconds(info.tcpi_last_ack_recv)};
}

}  // namespace weft::control
