// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>
#include <vector>

// `weft top`: rates of the comms of running processes, those that wait longest first or in another order.
namespace weft::counted {

struct TopOptions {
  std::vector<std::string> where;  // as for weft stats
  double interval = 1;             // seconds between two looks
  bool once = false;               // one table, without control sequences
  std::string sort = "wait";       // one of topOrders()
  std::string filter;              // only comms whose process, peer or device has this text in it
  int rows = 0;                    // at most; 0: as many as the terminal has
};

std::vector<std::string> topOrders();

int runTop(const TopOptions& options);

}  // namespace weft::counted
