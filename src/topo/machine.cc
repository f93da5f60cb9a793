// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/topo/machine.h"

#include "src/topo/sysfs.h"

// The product name in the firmware's tables.
namespace weft::topo {

std::string machineName(const std::string& root) {
  return readLine(root + "/devices/virtual/dmi/id/product_name");
}

}  // namespace weft::topo
