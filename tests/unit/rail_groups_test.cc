// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/topo/rail_groups.h"

#include <filesystem>
#include <fstream>

#include "providers/loop/transport.h"
#include "src/base/log.h"
#include "src/core/merging.h"
#include "src/core/net.h"
#include "src/topo/nic_facts.h"
#include "tests/support/catch.h"

// Trees of machines that exist, as their sysfs shows them: which cards weft makes one device of, and why.
using namespace weft;
using weft::topo::acceleratorPaths;
using weft::topo::groupRails;
using weft::topo::RailGroup;

namespace {

namespace fs = std::filesystem;

using Groups = std::vector<std::vector<int>>;

// Devices and accelerators of one machine; paths below /sys/devices.
struct Machine {
  std::vector<DeviceInfo> nics;
  std::vector<std::string> gpus;

  DeviceInfo& nic(const std::string& name, const std::string& path, int speedMbps = 400'000) {
    DeviceInfo info;
    info.name = name;
    info.provider = "verbs";
    info.pciPath = path.empty() ? "" : "/sys/devices/" + path;
    info.speedMbps = speedMbps;
    info.offload = true;
    info.linkLayer = "InfiniBand";
    return nics.emplace_back(std::move(info));
  }
  void gpu(const std::string& path) { gpus.push_back("/sys/devices/" + path); }

  std::vector<RailGroup> groups(const std::string& rule = "auto") const {
    auto made = groupRails(nics, gpus, rule);
    REQUIRE(made);
    return made.take();
  }
  Groups rails(const std::string& rule = "auto") const {
    Groups out;
    for (const RailGroup& group : groups(rule)) out.push_back(group.rails);
    return out;
  }
};

Groups eachAlone(size_t count) {
  Groups out;
  for (size_t i = 0; i < count; i++) out.push_back({static_cast<int>(i)});
  return out;
}

std::string bus(int number) {
  return format("0000:%02x", static_cast<unsigned>(number));
}

// p5.48xlarge: 8 GPUs, each with four EFA cards of 100 Gb/s below one switch. Buses of the cards as in their
// names (rdmap79s0 is bus 0x4f), from aws-ofi-nccl's topology/p5.48xl-topo.xml.
Machine p5() {
  Machine machine;
  for (const int first : {0x4f, 0x60, 0x71, 0x82, 0x93, 0xa4, 0xb5, 0xc6}) {
    const std::string root = bus(first - 11), up = bus(first - 10), down = bus(first - 9);
    const std::string place = "pci" + root + "/" + root + ":00.0/" + up + ":00.0/" + down;
    for (int i = 0; i < 4; i++) {
      auto& info = machine.nic(format("rdmap%ds0", first + i),
                               format("%s:0%d.0/%s:00.0", place.c_str(), i, bus(first + i).c_str()), 100'000);
      info.provider = "ofi:efa";
      info.linkLayer = "Unspecified";
    }
    machine.gpu(format("%s:04.0/%s:00.0", place.c_str(), bus(first + 4).c_str()));
  }
  return machine;
}

// p4d.24xlarge: buses and slots from aws-ofi-nccl's topology/p4d-24xl-topo.xml. The hypervisor shows no
// switch.
Machine p4d() {
  Machine machine;
  for (const char* root : {"0000:10", "0000:20", "0000:90", "0000:a0"}) {
    const std::string place = format("pci%s/%s:", root, root);
    machine.nic(format("rdma%s", root), place + "1b.0", 100'000).linkLayer = "Unspecified";
    machine.gpu(place + "1c.0");
    machine.gpu(place + "1d.0");
  }
  return machine;
}

// One single-port ConnectX-7 beside each GPU below a switch of their own, and two storage cards elsewhere.
Machine dgxH100() {
  Machine machine;
  for (int i = 0; i < 8; i++) {
    const std::string root = bus(0x10 + 0x18 * i);
    const std::string place = format("pci%s/%s:01.0/%s:00.0/%s", root.c_str(), root.c_str(),
                                     bus(0x11 + 0x18 * i).c_str(), bus(0x12 + 0x18 * i).c_str());
    machine.nic(format("mlx5_%d", i), format("%s:00.0/%s:00.0", place.c_str(), bus(0x13 + 0x18 * i).c_str()));
    machine.gpu(format("%s:01.0/%s:00.0", place.c_str(), bus(0x14 + 0x18 * i).c_str()));
  }
  return machine;
}

}  // namespace

TEST_CASE("p5: the four cards of each GPU are one device") {
  const auto groups = p5().groups();
  REQUIRE(groups.size() == 8);
  for (int i = 0; i < 8; i++)
    CHECK(groups[static_cast<size_t>(i)].rails == std::vector<int>{4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3});
  CHECK(groups[0].reason == "4 cards for each accelerator below PCI switch 0000:45:00.0");
}

TEST_CASE("p5 where only host bridges tell the GPUs apart") {
  Machine machine;
  for (const char* root : {"0000:44", "0000:55"}) {
    for (int i = 0; i < 4; i++)
      machine.nic(format("%s-%d", root, i),
                  format("pci%s/%s:0%d.0/%s:00.0", root, root, i, bus(0x60 + i).c_str()));
    machine.gpu(format("pci%s/%s:05.0/0000:70:00.0", root, root));
  }
  CHECK(machine.rails() == Groups{{0, 1, 2, 3}, {4, 5, 6, 7}});
  CHECK(machine.groups()[0].reason == "4 cards for each accelerator below host bridge pci0000:44");
  machine.gpus.clear();
  CHECK(machine.rails() == eachAlone(8));
  CHECK(machine.groups()[0].reason == "alone: with cards like it it shares only pci0000:44");
}

TEST_CASE("p4d: one card for two GPUs stays alone") {
  const Machine machine = p4d();
  CHECK(machine.rails() == eachAlone(4));
  CHECK(machine.groups()[0].reason == "alone: cards like it below pci0000:10: 1, accelerators: 2");
}

TEST_CASE("DGX H100: one card for each GPU stays alone") {
  Machine machine = dgxH100();
  CHECK(machine.rails() == eachAlone(8));
  CHECK(machine.groups()[3].reason == "alone: cards like it below 0000:59:00.0: 1, accelerators: 1");
  // A dual-port storage card, which is slower, changes nothing but for itself.
  machine.nic("mlx5_8", "pci0000:00/0000:00:03.0/0000:01:00.0", 100'000);
  machine.nic("mlx5_9", "pci0000:00/0000:00:03.0/0000:01:00.1", 100'000);
  Groups expected = eachAlone(8);
  expected.push_back({8, 9});
  CHECK(machine.rails() == expected);
}

TEST_CASE("two cards for two GPUs below one switch stay alone, four become two devices") {
  Machine machine;
  const std::string place = "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02";
  for (int i = 0; i < 4; i++) {
    machine.nic(format("mlx5_%d", i), format("%s:0%d.0/0000:0%d:00.0", place.c_str(), i, 3 + i));
    if (i == 1) {
      machine.gpu(place + ":08.0/0000:10:00.0");
      machine.gpu(place + ":09.0/0000:11:00.0");
      CHECK(machine.rails() == eachAlone(2));
    }
  }
  CHECK(machine.rails() == Groups{{0, 1}, {2, 3}});
  machine.gpu(place + ":0a.0/0000:12:00.0");
  CHECK(machine.rails() == eachAlone(4));  // four for three
  machine.gpus.clear();
  CHECK(machine.rails() == Groups{{0, 1, 2, 3}});
  CHECK(machine.groups()[0].reason == "below PCI switch 0000:01:00.0");
}

TEST_CASE("Azure NDv4: cards on virtual buses of their own stay alone") {
  Machine machine;
  for (int i = 0; i < 8; i++) {
    const std::string domain = format("%04x", 0x101 + i);
    machine.nic(format("mlx5_ib%d", i),
                format("LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/00000000-0000-0000-0000-00000000000%d/"
                       "pci%s:00/%s:00:02.0",
                       i, domain.c_str(), domain.c_str()),
                200'000);
    machine.gpu(
        format("LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/10000000-0000-0000-0000-00000000000%d/"
               "pci000%d:00/000%d:00:00.0",
               i, i + 1, i + 1));
  }
  CHECK(machine.rails() == eachAlone(8));
  CHECK(machine.groups()[0].reason ==
        "alone: it shares no PCI bridge with a card like it or with an accelerator");
}

TEST_CASE("ports of a dual-port card are one device, as functions and as ports of one function") {
  Machine machine;
  machine.nic("mlx5_0:1", "pci0000:3a/0000:3a:00.0/0000:3b:00.0");
  machine.nic("mlx5_1:1", "pci0000:3a/0000:3a:00.0/0000:3b:00.1");
  machine.nic("mlx4_0:1", "pci0000:5d/0000:5d:00.0/0000:5e:00.0");
  machine.nic("mlx4_0:2", "pci0000:5d/0000:5d:00.0/0000:5e:00.0").port = 2;
  CHECK(machine.rails() == Groups{{0, 1}, {2, 3}});
  CHECK(machine.groups()[1].reason == "ports of one card");
  CHECK(machine.rails("port") == Groups{{0, 1}, {2, 3}});
  CHECK(machine.rails("PORT") == Groups{{0, 1}, {2, 3}});
  CHECK(machine.rails("off") == eachAlone(4));
  CHECK(machine.rails("LOC") == eachAlone(4));
  CHECK(machine.groups("off")[0].reason == "alone: WEFT_MERGE_NICS does not put it together with others");
}

TEST_CASE("ports that differ in link layer, speed or provider stay alone") {
  Machine machine;
  machine.nic("mlx5_0:1", "pci0000:3a/0000:3a:00.0/0000:3b:00.0");
  machine.nic("mlx5_1:1", "pci0000:3a/0000:3a:00.0/0000:3b:00.1");
  machine.nics[1].linkLayer = "Ethernet";
  CHECK(machine.rails() == eachAlone(2));
  machine.nics[1].linkLayer = machine.nics[0].linkLayer;
  machine.nics[1].speedMbps = 25'000;
  CHECK(machine.rails() == eachAlone(2));
  machine.nics[1].speedMbps = machine.nics[0].speedMbps;
  machine.nics[1].provider = "ofi:efa";
  CHECK(machine.rails() == eachAlone(2));
}

TEST_CASE("virtual functions share a port: nothing is won by putting them together") {
  Machine machine;
  for (int i = 0; i < 4; i++)
    machine.nic(format("mlx5_%d", i), format("pci0000:3a/0000:3a:00.0/0000:3b:00.%d", i)).virtualFunction =
        i > 0;
  CHECK(machine.rails() == eachAlone(4));
  CHECK(machine.groups()[1].reason == "alone: a virtual function shares its port with others of the card");
}

TEST_CASE("a laptop's interfaces and both ports of a TCP card are never one device") {
  Machine machine;
  machine.nic("lo", "").offload = false;
  machine.nic("eth0", "pci0000:00/0000:00:1f.6", 1000).offload = false;
  machine.nic("eth1", "pci0000:3a/0000:3a:00.0/0000:3b:00.0").offload = false;
  machine.nic("eth2", "pci0000:3a/0000:3a:00.0/0000:3b:00.1").offload = false;
  CHECK(machine.rails() == eachAlone(4));
  CHECK(machine.groups()[2].reason ==
        "alone: the processor moves its data, a second one would not add to that");
}

TEST_CASE("port leaves cards below a switch apart") {
  const Machine machine = p5();
  CHECK(machine.rails("port") == eachAlone(32));
  CHECK(machine.rails("pix").size() == 8);
  for (const char* further : {"PXB", "P2C", "PXN", "PHB", "SYS"}) CHECK(machine.rails(further).size() == 8);
}

TEST_CASE("cards are put together by name") {
  Machine machine;
  for (const char* name : {"rxe0:1", "rxe1:1", "rxe2:1"}) machine.nic(name, "").offload = false;
  CHECK(machine.rails() == eachAlone(3));
  CHECK(machine.rails("rxe2:1,rxe0:1") == Groups{{1}, {2, 0}});
  CHECK(machine.rails("rxe0:1,rxe1:1;rxe2:1;") == Groups{{0, 1}, {2}});
  for (const char* rule : {"rxe0:1,rxe9:1", "rxe0:1,rxe0:1", "rxe0", "atuo"}) {
    const auto made = groupRails(machine.nics, {}, rule);
    REQUIRE_FALSE(made);
    CHECK(made.error().code() == Code::config);
    CHECK(made.error().message().find("rxe2:1") != std::string::npos);  // what could be named
  }
}

TEST_CASE("accelerators are found by their PCI class") {
  std::string pattern = (fs::temp_directory_path() / "weft-sys-XXXXXX").string();
  const fs::path root = ::mkdtemp(pattern.data());
  const auto device = [&](const std::string& name, const char* kind, const char* vendor) {
    const fs::path directory = root / "devices/pci0000:00" / name;
    fs::create_directories(directory);
    fs::create_directories(root / "bus/pci/devices");
    std::ofstream(directory / "class") << kind << '\n';
    std::ofstream(directory / "vendor") << vendor << '\n';
    fs::create_directory_symlink(directory, root / "bus/pci/devices" / name);
  };
  device("0000:00:01.0", "0x030200", "0x10de");  // 3D controller
  device("0000:00:02.0", "0x030000", "0x1a03");  // the board's console
  device("0000:00:03.0", "0x030000", "0x10de");
  device("0000:00:04.0", "0x120000", "0x1002");
  device("0000:00:05.0", "0x020700", "0x15b3");
  auto found = acceleratorPaths(root.string());
  std::sort(found.begin(), found.end());
  REQUIRE(found.size() == 3);
  CHECK(found[0] == fs::canonical(root / "devices/pci0000:00/0000:00:01.0").string());
  CHECK(found[1].ends_with("03.0"));
  CHECK(found[2].ends_with("04.0"));
  fs::remove_all(root);
  CHECK(acceleratorPaths(root.string()).empty());
}

TEST_CASE("NCCL does not merge interfaces that are no PCI devices") {
  core::NetOptions options;
  options.transport = loop::makeTransport({});
  for (const char* name : {"veth0", "veth1"}) {
    DeviceInfo& nic = options.devices.emplace_back();
    nic.name = name;
    nic.provider = "tcp";
  }
  const auto net = core::Net::create(std::move(options));
  REQUIRE(net);
  const int both[] = {0, 1};
  const Status merged = core::ncclCanMerge(**net, both);
  REQUIRE_FALSE(merged);
  CHECK(merged.error().message().find("veth0 is no PCI device") != std::string::npos);
}

// What NCCL merges itself comes on top: it names devices, and gets all their rails.
TEST_CASE("NCCL's virtual devices are made of our devices") {
  Machine machine;
  machine.nic("mlx5_0:1", "pci0000:3a/0000:3a:00.0/0000:3b:00.0", 200'000);
  machine.nic("mlx5_1:1", "pci0000:3a/0000:3a:00.0/0000:3b:00.1", 200'000);
  machine.nic("mlx5_2:1", "pci0000:5d/0000:5d:00.0/0000:5e:00.0", 100'000);
  core::NetOptions options;
  options.transport = loop::makeTransport({});
  options.devices = machine.nics;
  const auto net = core::Net::create(std::move(options));
  REQUIRE(net);
  REQUIRE((*net)->deviceCount() == 2);
  const auto first = (*net)->properties(0);
  REQUIRE(first);
  CHECK(first->name == "mlx5_0:1+mlx5_1:1");
  CHECK(first->speedMbps == 400'000);
  CHECK(first->members == std::vector<int>{0});
  CHECK(first->rails == std::vector<std::string>{"mlx5_0:1", "mlx5_1:1"});
  CHECK(first->grouping == "ports of one card");

  const int both[] = {0, 1};
  const auto merged = (*net)->makeVirtual(both);
  REQUIRE(merged);
  CHECK(*merged == 2);
  const auto properties = (*net)->properties(2);
  REQUIRE(properties);
  CHECK(properties->members == std::vector<int>{0, 1});
  CHECK(properties->rails.size() == 3);
  CHECK(properties->speedMbps == 500'000);
  CHECK(*(*net)->makeVirtual(both) == 2);  // asked again, as for its offload
  const int cards[] = {0, 2};              // there is no device 2 to merge: it is one of NCCL's own
  CHECK_FALSE((*net)->makeVirtual(cards));
}
