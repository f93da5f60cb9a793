// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>

// Reading sysfs. Any thread; not for the data path.
namespace weft::topo {

// The value of an attribute, a short line. Empty where it cannot be read.
std::string readLine(const std::string& path);

}  // namespace weft::topo
