// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "tools/netdriver/bootstrap.h"
#include "tools/replay/plan.h"
#include "tools/replay/times.h"

// `weft perf --replay`: a recorded job's calls once more, over any plugin, without GPUs and NCCL. Used by one
// thread.
namespace weft::replay {

struct Settings {
  std::vector<std::string> traces;  // files and folders
  std::string plugin;               // empty: weft's own
  int abi = 0;                      // 0: the newest
  std::string json;
  bool verbose = false;
  int timeoutSeconds = 1800;
  int stallSeconds = 120;
};

// As many processes as there are traces, each a rank; a single one plays all ranks. Rank 0 writes the report.
Status run(const Settings& settings, const netdriver::Place& place);

std::string reportText(const Times& times, const std::string& plugin, size_t ranks);
std::string reportDocument(const Times& times, const std::string& plugin, size_t ranks);

}  // namespace weft::replay
