// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <array>
#include <climits>
#include <cstdlib>
#include <dirent.h>
#include <memory>

#include "src/topo/rail_groups.h"
#include "src/topo/sysfs.h"

// GPUs and other accelerators by their PCI class.
namespace weft::topo {

namespace {

// PCI classes (pci.ids): 0x0302 is a 3D controller, 0x1200 a processing accelerator. A VGA controller
// (0x0300) counts where its vendor makes GPUs; others are the board's console.
bool isAccelerator(const std::string& device) {
  const std::string kind = readLine(device + "/class").substr(0, 6);
  if (kind == "0x0302" || kind == "0x1200") return true;
  const std::string vendor = readLine(device + "/vendor");
  return kind == "0x0300" && (vendor == "0x10de" || vendor == "0x1002");
}

}  // namespace

std::vector<std::string> acceleratorPaths(const std::string& root) {
  std::vector<std::string> paths;
  const std::string directory = root + "/bus/pci/devices";
  const std::unique_ptr<DIR, int (*)(DIR*)> list(::opendir(directory.c_str()), ::closedir);
  while (const dirent* entry = list ? ::readdir(list.get()) : nullptr) {
    if (entry->d_name[0] == '.') continue;
    const std::string device = directory + '/' + entry->d_name;
    std::array<char, PATH_MAX> resolved{};
    if (isAccelerator(device) && ::realpath(device.c_str(), resolved.data()))
      paths.emplace_back(resolved.data());
  }
  return paths;
}

}  // namespace weft::topo
