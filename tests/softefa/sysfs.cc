// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softefa/sysfs.h"

#include <cstdio>
#include <filesystem>
#include <unistd.h>

namespace softefa {

namespace {

namespace fs = std::filesystem;

std::string pciPath(const std::string& root, const Identity& nic) {
  return root + "/devices/pci0000:00/" + nic.pci;
}

// Other processes of the host may write the same file at the same time: each writes its own and renames it.
void writeFile(const fs::path& path, const std::string& text) {
  const std::string own = path.string() + "." + std::to_string(::getpid());
  if (std::FILE* file = std::fopen(own.c_str(), "w")) {
    std::fputs((text + "\n").c_str(), file);
    std::fclose(file);
    fs::rename(own, path);
  }
}

void link(const fs::path& target, const fs::path& path) {
  std::error_code exists;
  fs::create_symlink(target, path, exists);
}

void describeNic(const std::string& root, const Identity& nic, Generation generation) {
  const fs::path pci = pciPath(root, nic);
  fs::create_directories(devicePath(root, nic));
  fs::create_directories(root + "/bus/pci/drivers/efa");
  fs::create_directories(root + "/bus/pci/devices");
  link(root + "/bus/pci/drivers/efa", pci / "driver");
  link(pci, root + "/bus/pci/devices/" + nic.pci);
  link(pci, fs::path(devicePath(root, nic)) / "device");
  writeFile(pci / "numa_node", std::to_string(nic.numa));
  writeFile(pci / "vendor", "0x1d0f");
  char part[16];
  std::snprintf(part, sizeof part, "0x%x", partOf(generation));
  writeFile(pci / "device", part);
  writeFile(pci / "class", "0x020000");
  writeFile(pci / "max_link_speed", "32.0 GT/s PCIe");
  writeFile(pci / "max_link_width", "16");
}

}  // namespace

std::string devicePath(const std::string& root, const Identity& nic) {
  return pciPath(root, nic) + "/infiniband/" + nic.name;
}

std::string fabricDirectory(const Settings& settings) {
  const std::string path =
      settings.directory + "/softefa-" + std::to_string(::getuid()) + "/" + settings.fabric;
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    std::fprintf(stderr, "softefa: %s cannot be made: %s\n", path.c_str(), error.message().c_str());
    return {};
  }
  fs::permissions(fs::path(path).parent_path(), fs::perms::owner_all, error);
  return path;
}

std::string makeSysfs(const Settings& settings, const std::vector<Identity>& nics) {
  const std::string fabric = fabricDirectory(settings);
  if (fabric.empty()) return {};
  const std::string root = fabric + "/sys-" + settings.host;
  try {
    fs::create_directories(root + "/class/infiniband_verbs");
    fs::create_directories(root + "/class/infiniband");
    writeFile(root + "/class/infiniband_verbs/abi_version", "6");
    for (const auto& nic : nics) {
      describeNic(root, nic, settings.generation);
      link(devicePath(root, nic), root + "/class/infiniband/" + nic.name);
    }
  } catch (const fs::filesystem_error& error) {
    std::fprintf(stderr, "softefa: %s\n", error.what());
    return {};
  }
  return root;
}

}  // namespace softefa
