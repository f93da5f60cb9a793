// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tools/doctor/doctor.h"
#include "tools/doctor/report.h"
#include "tools/doctor/world.h"
#include "weft/result.h"

// `weft doctor --all`: the ranks of a launcher look at their hosts, the first of each host; they probe each
// other, and rank 0 compares what they are. Used by one thread.
namespace weft::doctor {

// Properties that must be, or had better be, the same on all hosts: name and value.
using Fingerprint = std::map<std::string, std::string>;
Fingerprint fingerprintOf(const World& world);

struct Node {
  std::string host;
  Fingerprint fingerprint;
  std::vector<std::string> addresses;  // that it would tell its peers
};

// Where they differ, and addresses that two of them have.
Findings compare(const std::vector<Node>& nodes);

// On rank 0 the reports of all hosts and of what is between them, elsewhere nothing.
Result<std::vector<HostReport>> lookEverywhere(const Options& options,
                                               const std::function<HostReport()>& lookHere);

}  // namespace weft::doctor
