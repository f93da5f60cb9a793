// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <optional>

#include "src/base/config.h"

// The knowledge of this host's kernel about the kernel at the other end of a connection, whatever the process
// there does (TCP_INFO, tcp(7)). No state; any thread.
namespace weft::control {

struct KernelAcks {
  bool outstanding = false;  // something is not acknowledged: it was sent, or it cannot leave this host
  uint64_t bytesAcked = 0;   // grows with every acknowledgement of something new
  Milliseconds sinceAck{0};  // since the last segment with an acknowledgement, new or repeated
};
// Nothing: the descriptor is no TCP connection.
std::optional<KernelAcks> kernelAcks(int fd);

}  // namespace weft::control
