// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>
#include <vector>

#include "tools/stats/reader.h"
#include "tools/stats/unseen.h"

// `weft autopsy FOLDER`: joins what the ranks of a job counted, also those that are gone, and names the first
// one that stood still.
namespace weft::counted {

struct AutopsyOptions {
  std::string folder;
  bool json = false;
};

// A verdict about the ranks, and what it rests on.
struct Verdict {
  // "died", "stopped", "debugger", "silent", "order", "late", "unseen", "circle", "size", "corrupt",
  // "failed", "rail", "torch", "none"
  std::string kind;
  const Process* culprit = nullptr;
  std::string
      peer;  // of "failed", "size", "corrupt" and "unseen": as its peers call it; empty: nobody is named
  uint64_t since = 0;  // when it moved last
  std::vector<std::string> evidence;
  std::string advice;
  std::vector<Unseen> unseen;  // on any of them nothing rests but what their peers left
};

Verdict judge(const std::vector<Process>& processes);

// The exit code: 0 where a rank was named or all of them move, 1 where there was nothing to read.
int runAutopsy(const AutopsyOptions& options);

}  // namespace weft::counted
