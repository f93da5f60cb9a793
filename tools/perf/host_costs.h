// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

namespace weft::perf {

// The work of a processor of this machine beside the network, for `weft perf --fit`. Any thread.
struct ProcessorCosts {
  struct Rates {
    double copyGBps = 0;    // from what has just come to memory of the operation
    double reduceGBps = 0;  // likewise, added to such memory; bytes of the result
  };
  int processors = 0;  // that this process may use
  Rates near;          // where the caches hold that memory
  Rates far;           // where they do not
};

// While as many threads copy and reduce as there are ranks, or processors where those are fewer. Takes a
// fifth of a second, and 40 MiB a thread.
ProcessorCosts measureProcessor(int ranks);

}  // namespace weft::perf
