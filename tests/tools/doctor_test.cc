// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <tuple>
#include <unistd.h>

#include "tests/support/catch.h"
#include "tools/doctor/checks.h"
#include "tools/doctor/mend.h"
#include "tools/doctor/report.h"

using namespace weft::doctor;
using weft::SocketAddress;

namespace {

namespace fs = std::filesystem;

// A host made of files and answers. It is a good one until a test makes it bad.
class Host {
 public:
  Host() {
    std::string pattern = (fs::temp_directory_path() / "weft-doctor-XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
    world.root = root_.string();
    world.space = [this](const std::string&) { return space; };
    world.addresses = [this]() -> weft::Result<std::vector<HostAddress>> { return addresses; };
    limits("1048576", "1048576", "unlimited");
    put("proc/self/cgroup", "0::/job\n");
    put("proc/self/status", "Name:\tweft\nCpus_allowed_list:\t0-15\n");
    put("sys/devices/system/cpu/online", "0-15\n");
    put("proc/sys/net/ipv4/ip_local_port_range", "16384\t65535\n");
    put("proc/net/tcp", "  sl  local_address rem_address\n   0: 0100007F:1F90 00000000:0000 0A\n");
    put("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t16777216\n");
    put("proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t16777216\n");
    card("eth0", "0000:00:05.0", "9000", "100000");
    address("eth0", {192, 0, 2, 7}, 24);
    world.environment["NCCL_NET_PLUGIN"] = "weft";
    put("usr/lib/libnccl-net-weft.so", "");
  }
  ~Host() { fs::remove_all(root_); }
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  void put(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void link(const std::string& from, const std::string& to) {
    fs::create_directories((root_ / from).parent_path());
    fs::create_symlink(root_ / to, root_ / from);
  }
  void remove(const std::string& path) { fs::remove_all(root_ / path); }
  void limits(const std::string& soft, const std::string& hard, const std::string& locked,
              const std::string& processes = "unlimited") {
    put("proc/self/limits",
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max processes             " +
            processes +
            "            unlimited            processes \n"
            "Max open files            " +
            soft + "      " + hard +
            "     files     \n"
            "Max locked memory         " +
            locked + "      " + locked + "     bytes     \n");
  }
  std::string pci(const std::string& place) const { return "sys/devices/pci0000:00/" + place; }
  void device(const std::string& place, const std::string& pciClass) {
    put(pci(place) + "/class", pciClass + "00\n");
    put(pci(place) + "/vendor", "0x15b3\n");
    put(pci(place) + "/device", "0x1021\n");
    put(pci(place) + "/numa_node", "0\n");
    put(pci(place) + "/current_link_width", "16\n");
    put(pci(place) + "/max_link_width", "16\n");
    put(pci(place) + "/current_link_speed", "32.0 GT/s PCIe\n");
    put(pci(place) + "/max_link_speed", "32.0 GT/s PCIe\n");
    link("sys/bus/pci/devices/" + fs::path(place).filename().string(), pci(place));
  }
  void card(const std::string& name, const std::string& place, const std::string& mtu,
            const std::string& speed) {
    device(place, "0x0200");
    link("sys/class/net/" + name + "/device", pci(place));
    put("sys/class/net/" + name + "/mtu", mtu + "\n");
    put("sys/class/net/" + name + "/speed", speed + "\n");
    put("sys/class/net/" + name + "/operstate", "up\n");
    put("sys/class/net/" + name + "/carrier", "1\n");
  }
  void gpu(const std::string& place) {
    device(place, "0x0302");
    put(pci(place) + "/vendor", "0x10de\n");
  }
  void rdma(const std::string& name, const std::string& place, const std::string& layer) {
    device(place, "0x0207");
    link("sys/class/infiniband/" + name + "/device", pci(place));
    const std::string port = "sys/class/infiniband/" + name + "/ports/1/";
    put(port + "state", "4: ACTIVE\n");
    put(port + "phys_state", "5: LinkUp\n");
    put(port + "rate", "400 Gb/sec (4X NDR)\n");
    put(port + "link_layer", layer + "\n");
    put(port + "gids/0", "0000:0000:0000:0000:0000:ffff:c000:0207\n");
    put(port + "gid_attrs/types/0", "RoCE v2\n");
    put(port + "counters/link_downed", "0\n");
    put("dev/infiniband/uverbs0", "");
  }
  void address(const std::string& name, std::array<int, 4> ip, int prefix) {
    std::array<std::byte, 4> bytes{};
    std::transform(ip.begin(), ip.end(), bytes.begin(), [](int one) { return static_cast<std::byte>(one); });
    addresses.push_back({name, SocketAddress::of(bytes, 0), prefix, false});
  }

  World world;
  std::optional<Space> space = Space{uint64_t{64} << 30, uint64_t{60} << 30};
  std::vector<HostAddress> addresses;

 private:
  fs::path root_;
};

// The worst of them, as what a test looks at.
const Finding& worstOf(const Findings& found) {
  REQUIRE_FALSE(found.empty());
  return *std::max_element(found.begin(), found.end(),
                           [](const Finding& a, const Finding& b) { return a.severity < b.severity; });
}

void expect(const Findings& found, Severity severity, const std::string& evidence, Mend::By by) {
  const Finding& one = worstOf(found);
  CAPTURE(one.topic, one.what, one.evidence, mendText(one.mend));
  CHECK(std::string(word(one.severity)) == word(severity));
  CHECK(one.evidence.find(evidence) != std::string::npos);
  CHECK(one.mend.by == by);
}

constexpr auto kRoot = Mend::By::root;
constexpr auto kHand = Mend::By::hand;
constexpr auto kSetting = Mend::By::setting;
constexpr auto kNobody = Mend::By::nobody;

// A configuration space of PCI Express with access control at 0x100 and, at 0x60, the capability of the bus.
std::string configSpace(unsigned control, unsigned deviceControl) {
  std::string space(4096, '\0');
  space[0x34] = 0x60;
  space[0x60] = 0x10;
  space[0x68] = static_cast<char>(deviceControl);
  space[0x100] = 0x0d;
  space[0x102] = 1;
  space[0x106] = static_cast<char>(control);
  return space;
}

}  // namespace

TEST_CASE("a good host has nothing to mend, and says what was looked at") {
  const Host host;
  for (const Check check : checks()) {
    const Findings found = check(host.world);
    REQUIRE_FALSE(found.empty());
    CAPTURE(worstOf(found).topic, worstOf(found).what, worstOf(found).evidence);
    CHECK(worstOf(found).severity == Severity::fine);
  }
}

TEST_CASE("an empty root: no check claims what it has not seen") {
  Host host;
  host.world.root += "/nothing";
  host.space.reset();
  for (const Check check : {openFiles, lockedMemory, threads, sharedMemory, memoryGroup, processors,
                            ephemeralPorts, socketBuffers, packetSizes}) {
    const Findings found = check(host.world);
    CAPTURE(worstOf(found).what, worstOf(found).evidence);
    CHECK(worstOf(found).severity == Severity::unknown);
  }
}

TEST_CASE("limits") {
  Host host;
  host.limits("1024", "1048576", "unlimited");
  expect(openFiles(host.world), Severity::note, "1024 (soft) of 1048576 (hard)", kHand);
  host.limits("1024", "4096", "unlimited");
  expect(openFiles(host.world), Severity::warning, "of 4096 (hard)", kRoot);
  host.world.environment["WORLD_SIZE"] = "1024";
  expect(openFiles(host.world), Severity::error, "1024 ranks take about", kRoot);
  host.world.environment["WORLD_SIZE"] = "16";
  expect(openFiles(host.world), Severity::fine, "16 ranks", kNobody);

  host.limits("1048576", "1048576", "65536");
  expect(lockedMemory(host.world), Severity::fine, "no RDMA card", kNobody);
  host.rdma("mlx5_0", "0000:00:06.0", "InfiniBand");
  expect(lockedMemory(host.world), Severity::error, "64 KiB", kRoot);
  host.limits("1048576", "1048576", "unlimited", "500");
  expect(threads(host.world), Severity::warning, "500", kHand);
}

TEST_CASE("memory and processors") {
  Host host;
  host.space = Space{uint64_t{64} << 20, uint64_t{60} << 20};
  expect(sharedMemory(host.world), Severity::error, "64 MiB", kRoot);
  host.space = Space{uint64_t{64} << 30, uint64_t{1} << 20};
  expect(sharedMemory(host.world), Severity::warning, "earlier jobs", kHand);

  host.put("sys/fs/cgroup/memory.max", "1073741824\n");
  host.put("sys/fs/cgroup/job/memory.max", "max\n");
  expect(memoryGroup(host.world), Severity::warning, "/sys/fs/cgroup/memory.max is 1 GiB", kHand);
  host.put("sys/fs/cgroup/memory.max", "1099511627776\n");
  host.put("sys/fs/cgroup/memory.current", "1098511627776\n");
  expect(memoryGroup(host.world), Severity::warning, "killed without a word", kHand);
  host.put("proc/self/cgroup", "9:cpu,cpuacct:/a\n4:memory:/a/b\n");
  host.put("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "2147483648\n");
  expect(memoryGroup(host.world), Severity::warning, "/sys/fs/cgroup/memory/a/memory.limit_in_bytes is 2 GiB",
         kHand);

  host.put("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "200000\n");
  host.put("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
  expect(processorQuota(host.world), Severity::note, "2 processors", kHand);
  host.put("sys/fs/cgroup/cpu/a/cpu.stat", "nr_periods 9\nnr_throttled 7\n");
  expect(processorQuota(host.world), Severity::warning, "stood still 7 times", kHand);

  host.put("proc/self/status", "Cpus_allowed_list:\t3\n");
  expect(processors(host.world), Severity::error, "1 of 16 (3)", kHand);
  host.put("proc/self/status", "Cpus_allowed_list:\t2-3\n");
  expect(processors(host.world), Severity::warning, "2 of 16", kHand);
  host.put("proc/self/status", "Cpus_allowed_list:\t0-15\n");
  host.world.environment["SLURM_NTASKS_PER_NODE"] = "8";
  expect(processors(host.world), Severity::warning, "8 ranks wants 24", kHand);
}

TEST_CASE("interfaces") {
  Host host;
  host.address("docker0", {172, 17, 0, 1}, 16);
  expect(sharedAddresses(host.world), Severity::fine, "docker0 left out", kNobody);
  host.world.environment["NCCL_SOCKET_IFNAME"] = "docker,eth";
  expect(sharedAddresses(host.world), Severity::error, "same address on others", kSetting);
  host.world.environment["NCCL_SOCKET_IFNAME"] = "ib";
  expect(interfacesUp(host.world), Severity::error, "\"ib\"", kHand);
  host.world.environment.erase("NCCL_SOCKET_IFNAME");

  host.card("eth1", "0000:00:07.0", "1500", "25000");
  host.address("eth1", {192, 0, 2, 8}, 24);
  expect(subnets(host.world), Severity::warning, "eth0 and eth1 are in one subnet", kRoot);
  host.put("proc/sys/net/ipv4/conf/all/arp_ignore", "1\n");
  expect(subnets(host.world), Severity::note, "arp_ignore 1", kNobody);
  expect(packetSizes(host.world), Severity::warning, "MTU 1500 at 25 Gb/s", kRoot);
  expect(linkSpeeds(host.world), Severity::warning,
         "25000 Mb/s, while a card of the same kind (eth0) has 100000", kHand);
  host.put("sys/class/net/eth1/carrier", "0\n");
  expect(interfacesUp(host.world), Severity::error, "and no link", kHand);
  host.address("eth1", {192, 0, 2, 7}, 24);
  expect(sharedAddresses(host.world), Severity::error, "192.0.2.7 is an address of eth0 and of eth1", kRoot);
  host.addresses.clear();
  expect(interfacesUp(host.world), Severity::error, "none has an address", kHand);
  host.world.addresses = []() -> weft::Result<std::vector<HostAddress>> {
    return weft::Error(weft::Code::system, "asking for interfaces", "refused");
  };
  for (const Check check : {interfacesUp, sharedAddresses, subnets, packetSizes})
    expect(check(host.world), Severity::unknown, "refused", kNobody);
}

TEST_CASE("ports") {
  Host host;
  std::string table = "head\n";
  for (int port = 40000; port < 40900; port++) {
    std::array<char, 64> row{};
    std::snprintf(row.data(), row.size(), " 0: 0100007F:%04X 00000000:0000 01\n", port);
    table += row.data();
  }
  host.put("proc/net/tcp6", table);
  host.put("proc/sys/net/ipv4/ip_local_port_range", "40000 40999\n");
  expect(ephemeralPorts(host.world), Severity::error, "of which 100 are left", kRoot);
  host.put("proc/sys/net/ipv4/ip_local_port_range", "40000 42000\n");
  expect(ephemeralPorts(host.world), Severity::warning, "1101 are left", kRoot);
  host.put("proc/sys/net/ipv4/ip_local_port_range", "30000 40000\n");
  expect(ephemeralPorts(host.world), Severity::note, "10000 are left", kRoot);

  host.world.environment["WEFT_PORT_RANGE"] = "40000-40910";
  expect(pinnedPorts(host.world), Severity::error, "911 ports, 11 of them free", kSetting);
  host.world.environment["WEFT_PORT_RANGE"] = "many";
  expect(pinnedPorts(host.world), Severity::error, "\"many\" is no range", kSetting);
  host.world.environment["WEFT_PORT_RANGE"] = "50000-50999";
  expect(pinnedPorts(host.world), Severity::fine, "1000 of them free", kNobody);
  host.put("proc/sys/net/ipv4/tcp_rmem", "4096 131072 212992\n");
  expect(socketBuffers(host.world), Severity::warning, "208 KiB", kRoot);
}

TEST_CASE("RDMA") {
  Host host;
  host.rdma("mlx5_0", "0000:00:06.0", "InfiniBand");
  host.rdma("mlx5_1", "0000:00:07.0", "InfiniBand");
  const std::string port = "sys/class/infiniband/mlx5_1/ports/1/";
  expect(rdmaPorts(host.world), Severity::fine, "all are up", kNobody);
  host.put(port + "rate", "200 Gb/sec (4X HDR)\n");
  expect(rdmaPorts(host.world), Severity::warning, "200 Gb/s, while mlx5_0:1 of the same kind has 400",
         kHand);
  host.put(port + "rate", "100 Gb/sec (2X HDR)\n");
  expect(rdmaPorts(host.world), Severity::warning, "fewer than four lanes", kHand);
  host.put(port + "state", "2: INIT\n");
  expect(rdmaPorts(host.world), Severity::error, "subnet manager", kRoot);
  host.put(port + "state", "1: DOWN\n");
  host.put(port + "phys_state", "3: Disabled\n");
  expect(rdmaPorts(host.world), Severity::warning, "it is DOWN (3: Disabled)", kHand);

  host.put(port + "state", "4: ACTIVE\n");
  host.put(port + "link_layer", "Ethernet\n");
  expect(rdmaAddresses(host.world), Severity::fine, "each RoCE port", kNobody);
  host.world.environment["NCCL_IB_GID_INDEX"] = "3";
  expect(rdmaAddresses(host.world), Severity::error, "NCCL_IB_GID_INDEX=3 names an entry that is empty",
         kHand);
  host.put(port + "gids/0", "0000:0000:0000:0000:0000:0000:0000:0000\n");
  host.world.environment.erase("NCCL_IB_GID_INDEX");
  expect(rdmaAddresses(host.world), Severity::error, "no RoCE v2 address", kRoot);
  host.remove(port + "gids");
  expect(rdmaAddresses(host.world), Severity::unknown, "cannot be read", kNobody);

  expect(rdmaCounters(host.world), Severity::fine, "no errors", kNobody);
  host.put(port + "hw_counters/packet_seq_err", "44444\n");
  expect(rdmaCounters(host.world), Severity::warning, "packets were lost", kHand);
  host.remove("sys/class/infiniband/mlx5_0/ports/1/counters");
  host.remove(port + "counters");
  host.remove(port + "hw_counters");
  expect(rdmaCounters(host.world), Severity::unknown, "no port shows its counters", kHand);

  expect(rdmaAccess(host.world), Severity::fine, "open", kNobody);
  host.remove("dev/infiniband/uverbs0");
  expect(rdmaAccess(host.world), Severity::error, "no uverbs device", kHand);
}

TEST_CASE("PCI Express") {
  Host host;
  host.device("0000:00:01.0", "0x0604");
  host.rdma("mlx5_0", "0000:00:01.0/0000:10:00.0", "InfiniBand");
  host.gpu("0000:00:01.0/0000:11:00.0");
  const std::string card = host.pci("0000:00:01.0/0000:10:00.0");
  host.put(card + "/current_link_width", "8\n");
  expect(pcieLinks(host.world), Severity::warning, "its link is x8", kHand);

  host.put(host.pci("0000:00:01.0") + "/config", configSpace(0x1d, 0));
  expect(accessControl(host.world), Severity::warning, "0x001d", kRoot);
  host.put(host.pci("0000:00:01.0") + "/config", configSpace(0, 0));
  expect(accessControl(host.world), Severity::fine, "off at 1 bridges", kNobody);
  host.put(host.pci("0000:00:01.0") + "/config", configSpace(0, 0).substr(0, 64));
  expect(accessControl(host.world), Severity::unknown, "not shown to this user", kHand);

  host.put(card + "/config", configSpace(0, 0));
  expect(relaxedOrdering(host.world), Severity::note, "mlx5_0 may not use it", kHand);
  host.put(card + "/config", configSpace(0, 0x10));
  expect(relaxedOrdering(host.world), Severity::fine, "nothing forbids", kNobody);
  host.put(card + "/config", std::string(64, '\0'));
  expect(relaxedOrdering(host.world), Severity::unknown, "not shown", kHand);

  host.put("sys/class/iommu/dmar0/name", "");
  expect(addressTranslation(host.world), Severity::unknown, "does not say", kNobody);
  host.put(card + "/iommu_group/type", "DMA-FQ\n");
  expect(addressTranslation(host.world), Severity::warning, "mlx5_0 (DMA-FQ)", kRoot);
  host.put(card + "/iommu_group/type", "identity\n");
  expect(addressTranslation(host.world), Severity::fine, "passes through", kNobody);
}

TEST_CASE("GPUs") {
  Host host;
  host.gpu("0000:00:08.0");
  expect(cardsBesideGpus(host.world), Severity::fine, "each GPU", kNobody);
  host.put(host.pci("0000:00:08.0") + "/numa_node", "1\n");
  host.put("sys/devices/system/node/node1/distance", "21 10\n");
  expect(cardsBesideGpus(host.world), Severity::note, "the nearest is 21 away", kHand);
  host.put(host.pci("0000:00:08.0") + "/numa_node", "-1\n");
  expect(cardsBesideGpus(host.world), Severity::note, "does not show", kHand);

  weft::info::Survey survey;
  survey.failure = "no fabric can be used";
  expect(fabric(survey), Severity::error, "no fabric can be used", kHand);
  survey.taken = survey.takenSpec = "tcp";
  weft::info::ProviderSurvey verbs;
  verbs.spec = "verbs";
  verbs.refusals = {{"mlx5_0:1", "the port is down", true, false}};
  survey.providers = {verbs};
  expect(fabric(survey), Severity::warning, "mlx5_0:1: the port is down", kHand);
  survey.noGpuDriver = "no driver here";
  expect(gpuDirect(survey), Severity::note, "no driver here", kNobody);
  survey.gpuDriver = "CUDA 12.4";
  weft::mem::GdrVerdict verdict;
  verdict.device = "mlx5_0:1";
  verdict.gpu = 3;
  verdict.rungs = {{"dma-buf", false, "the kernel is too old"}, {"staging by NCCL", true, ""}};
  survey.gpuDirect = {verdict};
  expect(gpuDirect(survey), Severity::note, "dma-buf: the kernel is too old", kHand);
  survey.gdrMode = "require";
  expect(gpuDirect(survey), Severity::error, "the kernel is too old", kHand);
}

TEST_CASE("settings") {
  Host host;
  auto& set = host.world.environment;
  set["WEFT_PROVDER"] = "tcp";
  expect(weftSettings(host.world), Severity::warning, "the nearest is WEFT_PROVIDER", kHand);
  set.erase("WEFT_PROVDER");
  set["WEFT_EAGER_MAX"] = "much";
  expect(weftSettings(host.world), Severity::error, "WEFT_EAGER_MAX", kHand);
  set.erase("WEFT_EAGER_MAX");
  host.put("etc/weft.conf", "WEFT_PROVIDR = tcp\n");
  expect(weftSettings(host.world), Severity::warning, "/etc/weft.conf:1", kHand);

  set["NCCL_SOKET_IFNAME"] = "eth0";
  expect(ncclSettings(host.world), Severity::warning, "the nearest is NCCL_SOCKET_IFNAME", kSetting);
  set.erase("NCCL_SOKET_IFNAME");
  set["NCCL_OF_THIS_SITE"] = "1";
  expect(ncclSettings(host.world), Severity::fine, "none", kNobody);

  host.put("etc/nccl.conf", "# ours\nNCCL_NET=Socket\n");
  expect(settingsThatFight(host.world), Severity::error, "NCCL_NET=Socket: NCCL takes its own sockets",
         kSetting);
  set["NCCL_NET"] = "weft";
  expect(settingsThatFight(host.world), Severity::fine, "no settings that fight", kNobody);
  for (const auto& [name, value, severity] : {std::tuple("NCCL_NET_GDR_LEVEL", "LOC", Severity::warning),
                                              std::tuple("NCCL_TUNER_PLUGIN", "other", Severity::note),
                                              std::tuple("NCCL_COLLNET_ENABLE", "1", Severity::note),
                                              std::tuple("WEFT_COLLNET", "tree", Severity::error),
                                              std::tuple("FI_PROVIDER", "tcp", Severity::note)}) {
    set[name] = value;
    CHECK(worstOf(settingsThatFight(host.world)).severity == severity);
    set.erase(name);
  }
  set["WEFT_SOCKET_IFNAME"] = "eth0";
  set["NCCL_SOCKET_IFNAME"] = "eth1";
  expect(settingsThatFight(host.world), Severity::note, "weft goes by its own", kSetting);
}

TEST_CASE("NCCL's settings come from the files that NCCL reads, in its order") {
  Host host;
  host.world.home = "/home/ann";
  auto& set = host.world.environment;
  set.erase("NCCL_NET_PLUGIN");
  host.put("etc/nccl.conf", "NCCL_NET_PLUGIN=fromsystem\nNCCL_NET=Socket\n");
  expect(ncclPlugin(host.world), Severity::error, "\"fromsystem\" by /etc/nccl.conf", kSetting);
  host.put("home/ann/.nccl.conf", "# mine\nNCCL_NET_PLUGIN=fromhome\nNCCL_NET=weft\n");
  expect(ncclPlugin(host.world), Severity::error, "\"fromhome\" by /home/ann/.nccl.conf", kSetting);
  expect(settingsThatFight(host.world), Severity::fine, "no settings that fight", kNobody);
  host.put("site.conf", "NCCL_NET_PLUGIN=weft\nNCCL_SOCKET_IFNAME=nosuch\n");
  set["NCCL_CONF_FILE"] = "/site.conf";
  expect(ncclPlugin(host.world), Severity::fine, "\"weft\" is ", kNobody);
  CHECK(pluginIsSet(host.world).empty());
  // The system's file counts beside the one that is named, and the home's does not.
  expect(settingsThatFight(host.world), Severity::error, "NCCL_NET=Socket", kSetting);
  expect(interfacesUp(host.world), Severity::error, "none that \"nosuch\"", kHand);
  set["NCCL_NET_PLUGIN"] = "fromenvironment";
  expect(ncclPlugin(host.world), Severity::error, "\"fromenvironment\" by the environment", kSetting);
}

TEST_CASE("libraries") {
  Host host;
  auto& set = host.world.environment;
  CHECK(pluginIsSet(host.world).empty());
  set.erase("NCCL_NET_PLUGIN");
  CHECK(ncclPlugin(host.world).empty());  // a host has no job's environment
  expect(pluginIsSet(host.world), Severity::error, "NCCL takes its own network", kSetting);
  host.put("opt/other/libnccl-net.so", "");
  set["LD_LIBRARY_PATH"] = "/opt/other::/opt/none";
  expect(pluginIsSet(host.world), Severity::error, "NCCL takes /opt/other/libnccl-net.so", kSetting);
  expect(otherPlugins(host.world), Severity::note, "/opt/other/libnccl-net.so", kSetting);
  set["NCCL_NET_PLUGIN"] = "ofi";
  expect(ncclPlugin(host.world), Severity::error, "\"ofi\" by the environment, which is not weft", kSetting);
  set["NCCL_NET_PLUGIN"] = "/opt/libnccl-net-weft.so";
  expect(ncclPlugin(host.world), Severity::error, "cannot be read", kSetting);
  set["NCCL_NET_PLUGIN"] = "weft";
  host.put("opt/other/libnccl-net-weft.so", "");
  expect(otherPlugins(host.world), Severity::warning, "several times", kHand);
  host.put("opt/other/libnccl-tuner.so", "");
  expect(otherPlugins(host.world), Severity::warning, "weft", kHand);
  host.remove("opt/other");
  host.remove("usr/lib/libnccl-net-weft.so");
  expect(ncclPlugin(host.world), Severity::warning, "no libnccl-net-weft.so lies", kHand);
}

TEST_CASE("a report counts what is fine, orders the rest by weight, and becomes a script") {
  const HostReport report{"node7",
                          {{Severity::fine, "limits", "open files", "many", {}},
                           {Severity::note, "settings", "A", "why", bySetting("A=1")},
                           {Severity::error, "memory", "/dev/shm", "64 MiB", byRoot(Cure::enlargeShm)},
                           {Severity::warning, "RDMA", "mlx5_0:1", "slow", byHand("its cable")}}};
  CHECK(reportText(report, false) ==
        "node7: 1 error, 1 warning, 1 note, 1 fine\n"
        "error    memory: /dev/shm: 64 MiB\n         as root: mount -o remount,size=16G /dev/shm  # docker: "
        "--shm-size=16g; Kubernetes: an "
        "emptyDir of medium Memory\n"
        "warning  RDMA: mlx5_0:1: slow\n         do:      its cable\n"
        "note     settings: A: why\n         setting: A=1\n");
  CHECK(reportText(report, true).find("ok       limits: open files: many\n") != std::string::npos);
  const std::string script = fixScript({report, report});
  CHECK(script.starts_with("#!/bin/sh\n"));
  REQUIRE(script.find("\nmount -o remount,size=16G /dev/shm  # docker") != std::string::npos);
  CHECK(script.find("\nmount -o remount,") == script.rfind("\nmount -o remount,"));
  CHECK(script.find("\n# in the job: export A=1\n") != std::string::npos);
  CHECK(script.find("\n# by hand: its cable\n") != std::string::npos);
  CHECK(exitStatus(worst(report.findings)) == 4);
  CHECK(exitStatus(Severity::warning) == 3);
  CHECK(exitStatus(Severity::unknown) == 0);
}
