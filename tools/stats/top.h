// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>
#include <vector>

// `weft top`: rates of the comms of running processes, those that wait longest first.
namespace weft::counted {

struct TopOptions {
  std::vector<std::string> where;  // as for weft stats
  double interval = 1;             // seconds between two looks
  bool once = false;               // one table, without control sequences
  int rows = 0;                    // at most; 0: as many as the terminal has
};

int runTop(const TopOptions& options);

}  // namespace weft::counted
