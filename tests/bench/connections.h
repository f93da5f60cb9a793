// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>

#include "tests/bench/companion.h"
#include "tests/bench/plugin_end.h"

// What connections cost: to make, to hold, and to keep beside others. Both processes call the same function
// with the same arguments; the second process, which listens, takes the times.
namespace weft::bench {

struct Opened {
  double connected = 0;  // microseconds from the first listen until every comm is there, on this side
  double received = 0;   // and until each has brought a message of 8 bytes
  double share = 0;      // of that time in which this process had a processor
};
// That many more channels from the first process to the second, all at the same time.
Opened openChannels(PluginEnd& end, const Companion& companion, size_t count);

// One message of `bytes` on every channel from the first process to the second.
void exerciseAll(PluginEnd& end, const Companion& companion, size_t bytes);

// "RSS-in-KiB descriptors threads" of this process.
std::string processState();

}  // namespace weft::bench
