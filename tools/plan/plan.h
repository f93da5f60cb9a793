// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <string>
#include <vector>

// `weft plan`: what a job does on a cluster, by a model. Used by one thread.
namespace weft::plan {

struct Options {
  std::string job;      // a file, or a folder of traces
  std::string cluster;  // a file, or the name of a platform
  std::string gpus = "2..4096";
  std::string algorithm;         // empty: the job's own
  std::vector<std::string> set;  // NAME=VALUE, of numbers.h
  double fitBelow = 0;           // GPUs; 0: nothing is fitted
  double railsLost = 0;
  uint64_t seed = 1;
  int draws = 400;
  std::string json;
  std::string html;
  std::string plot;
  std::string chakra;  // what the files of the ranks begin with
  std::string goal;
};

// The exit code: 1 where a file does not fit, in one line that names it and the field.
int run(const Options& options);

}  // namespace weft::plan
