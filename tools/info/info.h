// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <string>

// `weft info`: what weft finds on this machine and would tell NCCL, and its settings. Used by one thread.
namespace weft::info {

struct Options {
  bool config = false;    // only the settings
  bool markdown = false;  // those as a page
  bool sample = false;    // those as a configuration file, all comments
  bool json = false;
  bool image = false;  // what will work in this image, without hardware
  bool tuner = false;
  std::string topology;  // "this" or a machine's name: its file for NCCL
  std::string machine;   // empty: this one
  uint64_t nodes = 4;
  uint64_t ranks = 0;  // 0: eight a node
};

// The program's exit status. 0: there is something for NCCL to use, or only settings or advice were asked
// for.
int run(const Options& options);

}  // namespace weft::info
