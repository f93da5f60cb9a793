// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>
#include <vector>

#include "tools/doctor/finding.h"
#include "tools/json/json.h"

// Findings in words, for programs, as a script for root and as an exit status. Pure functions of their
// arguments.
namespace weft::doctor {

// A report of this host was made by this process; one of elsewhere came by the network, and nothing of it is
// run here.
enum class Where : uint8_t { here, elsewhere };

// All that one host has to say.
struct HostReport {
  std::string host;
  Findings findings;
  Where where = Where::here;
};

const char* word(Severity severity);
Severity worst(const Findings& findings);

// Findings that are fine are counted, and listed only where `all` asks for them.
std::string reportText(const HostReport& report, bool all);
Json reportJson(const HostReport& report);

// A shell script of what root of this host would run for these findings, once each. The part of a user
// or a job stands there as comments, and so does all that is about other hosts.
std::string fixScript(const std::vector<HostReport>& reports);

// 0: nothing worse than a note, or a check that could not look. 3: warnings. 4: errors. (1 is a failure of
// the doctor itself, 2 wrong usage.)
int exitStatus(Severity worst);

}  // namespace weft::doctor
