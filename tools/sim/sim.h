// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <string>

// `weft sim`: an operation of `weft perf` on a network that nobody has, by the real protocol in one thread
// under a virtual clock.
namespace weft::sim {

// The task as the command line gives it; sizes in bytes.
struct Options {
  std::string operation;  // one of weft perf's, or "connect"; with `fit` none is wanted
  std::string algorithm;  // empty: its default one
  int ranks = 2;
  std::string fabric;
  uint64_t minBytes = 8;
  uint64_t maxBytes = uint64_t{64} << 20;
  double factor = 2;
  uint64_t stepBytes = 0;
  int iterations = 1;
  int warmup = 1;
  int processors = 0;  // that all ranks share, on one host; 0: as many as --fabric says
  int peers = 0;       // of each rank with connect; 0: all others
  uint64_t seed = 1;
  std::string json;
  std::string fit;  // where to write what weft perf --fit would have
};

// The exit code: 1 where something does not fit, in one line that names it.
int run(const Options& options);

}  // namespace weft::sim
