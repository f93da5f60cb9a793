// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>
#include <vector>

// The collectives in which PyTorch's flight recorder saw each rank, by the files it left beside our counters
// (TORCH_NCCL_DUMP_ON_TIMEOUT, names that end with rank_N). It knows the call, where weft knows the message.
// Plain values.
namespace weft::counted {

struct TorchRank {
  int rank = -1;
  // Of the process group that the most ranks have something open in:
  std::string group;
  int64_t called = -1;    // the number of the last collective it called; -1: none
  int64_t finished = -1;  // and of the last one that was over
  std::string call;       // that last one, "nccl:all_reduce of [[1024]]"
};

// Sentences about ranks that have called less than others, or something else with the same number.
std::vector<std::string> torchFindings(const std::vector<TorchRank>& ranks);

std::vector<TorchRank> readTorchDumps(const std::string& folder);  // by rank

}  // namespace weft::counted
