// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>

// The machine's name in its firmware (DMI, sysfs devices/virtual/dmi/id/product_name); in EC2 that is the
// instance type. `root` is "/sys" except in tests. Any thread; reads a file.
namespace weft::topo {

std::string machineName(const std::string& root = "/sys");  // "p5.48xlarge"; empty: unknown

}  // namespace weft::topo
