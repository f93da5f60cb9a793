// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

// The work of a rank's thread. Sending takes its time before the message leaves; the time of all else is
// taken when the thread has done what it could. Used by one thread.
namespace weft::sim {

struct Effort {
  std::function<void()> prepareMessage;  // sleeps as long as that takes
  uint64_t calls = 0;                    // that post or test
  uint64_t inVain = 0;                   // tests of what is not done
  uint64_t sent = 0;
  uint64_t received = 0;
  uint64_t bytesSent = 0;
  std::vector<uint64_t> arrivals;  // bytes of each message that was received
  uint64_t copied = 0;             // bytes, from one place to another
  uint64_t reduced = 0;            // bytes of the result
  bool moved = false;              // something has gone on
};

}  // namespace weft::sim
