// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>
#include <vector>

// `weft doctor`: is this host, or are all hosts of a job, fit for it? Used by one thread.
namespace weft::doctor {

struct Options {
  bool json = false;
  bool verbose = false;            // what is fine, too
  bool fixScript = false;          // only what root would run
  bool job = false;                // this is the environment of a job: does it have what it must?
  bool all = false;                // every node of the launcher that started this
  std::vector<std::string> hosts;  // to probe from here
  double seconds = 3;              // that a probe waits for an answer
};

// The program's exit status: that of the worst finding (report.h), 1 where the doctor itself failed.
int run(const Options& options);

}  // namespace weft::doctor
