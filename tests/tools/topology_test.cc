// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/info/topology.h"

#include <filesystem>
#include <fstream>

#include "tests/support/catch.h"

using namespace weft::info;

namespace {

namespace fs = std::filesystem;

// A machine made of files, as the kernel shows one.
class Machine {
 public:
  Machine() {
    std::string pattern = (fs::temp_directory_path() / "weft-topology-XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
    fs::create_directories(root_ / "sys/bus/pci/devices");
    put("proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n");
  }
  ~Machine() { fs::remove_all(root_); }

  void put(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void addDevice(const std::string& place, const std::string& pciClass, const std::string& numa) {
    const std::string path = "sys/devices/pci0000:00/" + place;
    put(path + "/class", pciClass + "00\n");
    put(path + "/numa_node", numa + "\n");
    put(path + "/current_link_width", "16\n");
    put(path + "/current_link_speed", "16.0 GT/s PCIe\n");
    fs::create_symlink(root_ / path, root_ / "sys/bus/pci/devices" / fs::path(path).filename());
  }
  void addInterface(const std::string& name, const std::string& place) {
    fs::create_directories(root_ / "sys/class/net" / name);
    fs::create_symlink(root_ / "sys/devices/pci0000:00" / place, root_ / "sys/class/net" / name / "device");
  }
  std::string path() const { return root_.string(); }

 private:
  fs::path root_;
};

}  // namespace

TEST_CASE("a machine without GPU and card has no topology") {
  const Machine machine;
  const auto topology = ownTopology(machine.path());
  REQUIRE_FALSE(topology);
  CHECK(topology.error().code() == weft::Code::unavailable);
}

TEST_CASE("a machine's own topology: what shares a bridge stands below it, on its processor") {
  Machine machine;
  machine.put("sys/devices/system/node/node1/cpumap", "ff00\n");
  machine.addDevice("0000:00:01.0", "0x0604", "0");
  machine.addDevice("0000:00:01.0/0000:10:00.0", "0x0302", "0");
  machine.addDevice("0000:00:01.0/0000:11:00.0", "0x0200", "0");
  machine.addInterface("eth0", "0000:00:01.0/0000:11:00.0");
  machine.addDevice("0000:00:02.0", "0x0302", "1");
  const auto topology = ownTopology(machine.path());
  REQUIRE(topology);
  CHECK(
      topologyXml(*topology) ==
      "<!-- this machine, for NCCL_TOPO_FILE. Source: what the kernel shows -->\n"
      "<system version=\"1\">\n"
      "  <cpu numaid=\"0\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"143\">\n"
      "    <pci busid=\"0000:00:01.0\" class=\"0x060400\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">\n"
      "      <pci busid=\"0000:10:00.0\" class=\"0x030200\" link_speed=\"16.0 GT/s PCIe\" "
      "link_width=\"16\"/>\n"
      "      <pci busid=\"0000:11:00.0\" class=\"0x020000\" link_speed=\"16.0 GT/s PCIe\" "
      "link_width=\"16\"/>\n"
      "    </pci>\n"
      "  </cpu>\n"
      "  <cpu numaid=\"1\" affinity=\"ff00\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" "
      "modelid=\"143\">\n"
      "    <pci busid=\"0000:00:02.0\" class=\"0x030200\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\"/>\n"
      "  </cpu>\n"
      "</system>\n");
}
