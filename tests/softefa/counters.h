// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <cstdint>

namespace softefa {

// What one opened NIC did, for tests and SOFTEFA_STATISTICS; softefa.h reads them by name. Any thread.
struct Counters {
  std::atomic<uint64_t> packetsSent{0};
  std::atomic<uint64_t> packetsReceived{0};
  std::atomic<uint64_t> bytesReceived{0};     // without headers
  std::atomic<uint64_t> bytesWritten{0};      // by RDMA writes of others into memory here
  std::atomic<uint64_t> packetsHeld{0};       // by a fault: delay, reorder, rate, loss
  std::atomic<uint64_t> packetsLost{0};       // and sent again, where the queue pair is reliable
  std::atomic<uint64_t> datagramsDropped{0};  // lost, or nobody was ready for them
  std::atomic<uint64_t> notReady{0};          // answers "receiver not ready" that were given
  std::atomic<uint64_t> outOfOrder{0};        // own work that completed after younger work of its queue pair
  std::atomic<uint64_t> workFlushed{0};       // own work that was under way when its queue pair ended
  std::atomic<uint64_t> completionsOverrun{0};  // completions that found their queue full
};

}  // namespace softefa
