// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "src/topo/nic_facts.h"
#include "tests/support/catch.h"

using weft::topo::NicFacts;

namespace {

namespace fs = std::filesystem;

// A little sysfs of our own; removed at the end.
class FakeSys {
 public:
  FakeSys() {
    std::string pattern = (fs::temp_directory_path() / "weft-sys-XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
  }
  ~FakeSys() { fs::remove_all(root_); }

  void file(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << '\n';
  }
  void link(const std::string& path, const std::string& target) const {
    fs::create_directories((root_ / path).parent_path());
    fs::create_directories(root_ / target);
    fs::create_directory_symlink(root_ / target, root_ / path);
  }
  std::string root() const { return root_.string(); }

 private:
  fs::path root_;
};

}  // namespace

TEST_CASE("facts of an Ethernet card") {
  const FakeSys sys;
  const std::string pci = "devices/pci0000:00/0000:00:05.0";
  sys.file(pci + "/numa_node", "1");
  sys.link("class/net/eth7/device", pci + "/virtio3");
  sys.file("class/net/eth7/speed", "25000");
  sys.file("class/net/eth7/mtu", "9001");
  sys.file("class/net/eth7/address", "02:fc:00:00:00:01");
  const NicFacts facts = weft::topo::netdevFacts("eth7", sys.root());
  CHECK(facts.pciPath == fs::canonical(fs::path(sys.root()) / pci).string());
  CHECK(facts.numaNode == 1);
  CHECK(facts.speedMbps == 25000);
  CHECK(facts.mtu == 9001);
  CHECK(facts.guid == 0x02fc00000001u);
}

TEST_CASE("facts of a virtual interface say that they are missing") {
  const FakeSys sys;
  sys.file("class/net/lo/speed", "-1");
  sys.file("class/net/lo/mtu", "65536");
  sys.file("class/net/lo/address", "00:00:00:00:00:00");
  const NicFacts facts = weft::topo::netdevFacts("lo", sys.root());
  CHECK(facts.pciPath.empty());
  CHECK(facts.numaNode == -1);
  CHECK(facts.speedMbps == 0);
  CHECK(facts.guid == 0);
  CHECK(weft::topo::netdevFacts("none", sys.root()).mtu == 0);
}

TEST_CASE("facts of an RDMA device") {
  const FakeSys sys;
  sys.link("class/infiniband/mlx5_0/device", "devices/pci0000:3a/0000:3b:00.1");
  sys.file("class/infiniband/mlx5_0/ports/2/rate", "100 Gb/sec (4X EDR)");
  sys.file("class/infiniband/mlx5_0/sys_image_guid", "506b:4b03:00c4:1a2e");
  sys.file("class/infiniband/mlx5_0/ports/2/link_layer", "InfiniBand");
  const NicFacts facts = weft::topo::rdmaFacts("mlx5_0", 2, sys.root());
  CHECK(facts.linkLayer == "InfiniBand");
  CHECK_FALSE(facts.virtualFunction);
  CHECK(facts.pciPath.ends_with("/0000:3b:00.1"));
  CHECK(facts.speedMbps == 100000);
  CHECK(facts.guid == 0x506b4b0300c41a2eu);
  CHECK(facts.numaNode == -1);
}

TEST_CASE("a made-up GUID tells hosts and names apart") {
  CHECK(weft::topo::madeUpGuid("a", "lo") == weft::topo::madeUpGuid("a", "lo"));
  CHECK(weft::topo::madeUpGuid("a", "lo") != weft::topo::madeUpGuid("b", "lo"));
  CHECK(weft::topo::madeUpGuid("a", "lo") != weft::topo::madeUpGuid("a", "shm"));
  CHECK(weft::topo::madeUpGuid("", "") != 0);
}

TEST_CASE("a virtual function is known by the link to its card") {
  const FakeSys sys;
  sys.link("class/infiniband/mlx5_2/device", "devices/pci0000:3a/0000:3b:00.2");
  sys.link("devices/pci0000:3a/0000:3b:00.2/physfn", "devices/pci0000:3a/0000:3b:00.0");
  CHECK(weft::topo::rdmaFacts("mlx5_2", 1, sys.root()).virtualFunction);
}
