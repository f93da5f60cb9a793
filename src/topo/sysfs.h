// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>

namespace weft::topo {

// A sysfs attribute is one short line; one that cannot be read is an empty string. Any thread.
std::string readLine(const std::string& path);

}  // namespace weft::topo
