// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "weft/result.h"

// The topology file of aggregation daemons. It has a line for each daemon, "NAME HOST:PORT PARENT". PARENT is
// the name of another line, or - for the root; # begins a comment. Pure but for readTopology; any thread.
namespace weft::agg {

struct TopologyEntry {
  std::string name;
  std::string address;
  std::string parent;  // the parent's name; empty: this is the root
};

// An error names the line, or the names that form a circle. At most two levels are supported: leaves and a
// root.
Result<std::vector<TopologyEntry>> parseTopology(std::string_view text);
Result<std::vector<TopologyEntry>> readTopology(const std::string& path);

// Null: no line has that name.
const TopologyEntry* findEntry(const std::vector<TopologyEntry>& topology, const std::string& name);

}  // namespace weft::agg
