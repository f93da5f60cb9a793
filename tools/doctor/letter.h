// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>

#include "tools/doctor/cluster.h"

// The letters that ranks of `weft doctor --all` send each other, as text: fields with a separator that no
// name has. The first field names the form, so that another version is seen. Pure; any thread.
namespace weft::doctor {

std::string nodeLetter(const Node& node, uint16_t port);
bool readNode(const std::string& letter, Node* node, uint16_t* port);

std::string reportLetter(const HostReport& report);
HostReport readReport(const std::string& letter);

}  // namespace weft::doctor
