// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>

// The firmware's name of the machine (DMI); in EC2 that is the instance type. `root` is "/sys" except in
// tests. Any thread; reads a file.
namespace weft::topo {

std::string machineName(const std::string& root = "/sys");  // "p5.48xlarge"; empty: not known

}  // namespace weft::topo
