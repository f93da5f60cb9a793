// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

namespace weft::perf {

// The work of a processor of this machine beside the network, for `weft perf --fit`. Any thread.
struct ProcessorCosts {
  int processors = 0;     // that this process may use
  double copyGBps = 0;    // from what has just come to memory that was not looked at for long
  double reduceGBps = 0;  // likewise, added to such memory; bytes of the result
};

// While as many threads copy and reduce as there are ranks, or processors where those are fewer. Takes a
// fifth of a second, and 40 MiB a thread.
ProcessorCosts measureProcessor(int ranks);

}  // namespace weft::perf
