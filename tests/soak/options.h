// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/result.h"

// The command line of the soak, in the process people start and in the peers it starts. Values.
namespace weft::soak {

struct Options {
  double minutes = 30;
  uint64_t seed = 0;     // 0: drawn, and printed
  std::string provider;  // without fault rules
  std::string plugin;
  int peers = 3;
  bool verbose = false;

  // In a peer:
  uint16_t port = 0;  // where the hub listens; 0: we are the hub
  int abi = 12;
  std::vector<std::string> environment;  // NAME=VALUE
};

// An error names the argument and what is allowed.
Result<Options> parseOptions(int argc, char** argv);

const char* usage();

}  // namespace weft::soak
