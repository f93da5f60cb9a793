// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>
#include <vector>

// `weft trace`: what stands in traces.
namespace weft::trace {

struct Options {
  std::vector<std::string> files;  // or folders
  bool events = false;             // every call, not only the summary
  bool json = false;
};

// The exit code: 1 where a file is no trace, or is not one to its end.
int run(const Options& options);

}  // namespace weft::trace
