// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tests/nccl/api.h"

namespace nccltest {

// One rank, in a thread of its own or in a process.
struct Rank {
  int rank = 0, ranks = 0;
  Comm comm = nullptr;
  Stream stream = nullptr;
};

// Runs a case by name, on all ranks at once. False: something was wrong, and was told.
bool runCase(const std::string& name, Rank& rank);
std::vector<std::string> caseNames();

}  // namespace nccltest
