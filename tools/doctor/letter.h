// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <string>

#include "tools/doctor/cluster.h"

// The letters that ranks of `weft doctor --all` send each other, as text: fields with a separator that no
// name has. The first field names the form, so that another version is seen. A reader takes any bytes: it
// keeps addresses that are some, and mends by their names and typed arguments (mend.h). Texts are kept as
// they came, and made printable where they are shown. Pure; any thread.
namespace weft::doctor {

// No letter is longer, in bytes: findings that do not fit are left out.
constexpr size_t kMostLetter = size_t{1} << 18;

std::string nodeLetter(const Node& node, uint16_t port);
bool readNode(const std::string& letter, Node* node, uint16_t* port);

std::string reportLetter(const HostReport& report);
HostReport readReport(const std::string& letter);

}  // namespace weft::doctor
