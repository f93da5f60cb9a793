// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>

#include "tests/bench/companion.h"
#include "tests/bench/end.h"

// What is measured, the same for every way. Both processes call the same function with the same arguments;
// only the first one gets the result. Times in microseconds. With each comes the share of the time in which
// this process had a processor: it never sleeps, so below 1 something else was running.
namespace weft::bench {

struct Latency {
  double median = 0, p99 = 0, least = 0;  // of half round trips
  double share = 0;
};
// One message of `bytes` to and fro at a time.
Latency pingPong(End& end, bool first, size_t bytes, size_t rounds);

struct Stream {
  size_t bytes = 8;
  size_t window = 8;    // messages in flight on each channel
  size_t channels = 1;  // from the first one on
  uint64_t count = 1;   // messages in all, a multiple of `channels`
};
struct Streamed {
  double microseconds = 0;  // from the first message's start until the receiver's word that it has the last
  double share = 0;
};
Streamed stream(End& end, bool first, const Stream& what);

}  // namespace weft::bench
