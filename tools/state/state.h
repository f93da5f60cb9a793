// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>

// `weft state FOLDER`: what the processes wait for that have this folder as WEFT_STATE_DIR.
namespace weft::state {

struct Options {
  std::string folder;
  double seconds = 3;  // that they are given to answer; it ends when all have
  bool json = false;
};

// The exit code: 1 where no process answered. Earlier answers that lie there are shown then.
int run(const Options& options);

}  // namespace weft::state
