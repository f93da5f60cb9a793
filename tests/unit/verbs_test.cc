// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <filesystem>
#include <fstream>
#include <map>
#include <unistd.h>

#include "providers/verbs/address.h"
#include "providers/verbs/lane_table.h"
#include "providers/verbs/settings.h"
#include "providers/verbs/transport.h"
#include "providers/verbs/words.h"
#include "tests/support/catch.h"
#include "tests/support/text.h"

// What of verbs needs no card: addresses, choosing among them, settings and words.
using namespace weft;
using namespace weft::verbs;
using test::contains;

namespace {

GidEntry entry(int index, const std::string& text, const std::string& type = "RoCE v2",
               const std::string& netdev = "eth0") {
  GidEntry made{index, {}, type, netdev};
  REQUIRE(parseGid(text, &made.gid));
  return made;
}

// As mlx5 has it: every address as v1 and v2, the link-local one first.
std::vector<GidEntry> usualTable() {
  return {entry(0, "fe80::1", "IB/RoCE v1"),          entry(1, "fe80::1"),
          entry(2, "::ffff:192.0.2.7", "IB/RoCE v1"), entry(3, "::ffff:192.0.2.7"),
          entry(4, "2001:db8::7", "IB/RoCE v1"),      entry(5, "2001:db8::7")};
}

GidChoice chosen(const std::vector<GidEntry>& table, const GidWish& wish = {}) {
  auto choice = chooseGids(table, wish);
  if (!choice) FAIL(choice.error().message());
  return choice.take();
}

LaneAddress someAddress() {
  LaneAddress address;
  address.mtu = 5;
  address.readsServed = 16;
  address.lid = 0x1234;
  address.needsHeader = true;
  address.eceVendor = 0x15b3;
  address.eceOptions = 0x30000003;
  address.pairs = {{0xabcdef, 0x123456}, {0xabcdf0, 1}};
  address.gids = {entry(3, "::ffff:192.0.2.7").gid, entry(5, "2001:db8::7").gid};
  return address;
}

// A sysfs of its own in a temporary folder.
struct FakeSysfs {
  FakeSysfs() {
    std::string pattern = (std::filesystem::temp_directory_path() / "weft-gids-XXXXXX").string();
    root = ::mkdtemp(pattern.data());
  }
  ~FakeSysfs() { std::filesystem::remove_all(root); }
  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root + "/class/infiniband/mlx5_0/ports/1/" + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << '\n';
  }
  std::string root;
};

}  // namespace

TEST_CASE("of a RoCE port's table the first v2 entries of both families are taken, IPv4 first") {
  const GidChoice choice = chosen(usualTable());
  REQUIRE(choice.entries.size() == 2);
  CHECK(choice.entries[0].index == 3);
  CHECK(choice.entries[1].index == 5);
  CHECK(contains(choice.why, "GID 3 (192.0.2.7, RoCE v2, eth0)"));
  CHECK(contains(choice.why, "GID 5"));
}

TEST_CASE("without IPv4 a global IPv6 address is taken, and else the link-local one") {
  auto table = usualTable();
  std::erase_if(table, [](const GidEntry& one) { return one.family() == GidFamily::ipv4; });
  CHECK(chosen(table).entries.front().index == 5);
  std::erase_if(table, [](const GidEntry& one) { return one.family() == GidFamily::ipv6; });
  const GidChoice local = chosen(table);
  REQUIRE(local.entries.size() == 1);
  CHECK(local.entries.front().index == 1);
  CHECK(contains(local.why, "link-local"));
}

TEST_CASE("entries of another network namespace are passed over") {
  std::vector<GidEntry> table = {entry(1, "::ffff:192.0.2.7", "RoCE v2", "elsewhere"),
                                 entry(2, "::ffff:192.0.2.8", "RoCE v2", "eth0")};
  GidWish wish;
  wish.reachable = [](const std::string& netdev) { return netdev == "eth0"; };
  CHECK(chosen(table, wish).entries.front().index == 2);
  table.pop_back();
  const auto none = chooseGids(table, wish);
  REQUIRE_FALSE(none);
  CHECK(contains(none.error().detail(), "no RoCE v2 address in this network namespace"));
  CHECK(contains(none.error().detail(), "elsewhere"));
}

TEST_CASE("a port that only has RoCE v1 is refused with its table, but can be forced by index") {
  const std::vector<GidEntry> table = {entry(0, "fe80::1", "IB/RoCE v1"),
                                       entry(2, "::ffff:192.0.2.7", "IB/RoCE v1")};
  const auto none = chooseGids(table, {});
  REQUIRE_FALSE(none);
  CHECK(none.error().code() == Code::unavailable);
  CHECK(contains(none.error().detail(), "WEFT_IB_GID_INDEX"));
  CHECK(contains(none.error().detail(), "GID 2 (192.0.2.7, IB/RoCE v1, eth0)"));
  CHECK(chosen(table, {.index = 2}).entries.front().index == 2);
}

TEST_CASE("an index that is empty is refused, naming what there is") {
  const auto none = chooseGids(usualTable(), {.index = 9});
  REQUIRE_FALSE(none);
  CHECK(contains(none.error().detail(), "is 9"));
  CHECK(contains(none.error().detail(), "GID 3"));
}

TEST_CASE("an entry whose index libibverbs cannot name is passed over, and refused where it is chosen") {
  std::vector<GidEntry> table = {entry(256, "::ffff:192.0.2.7"), entry(300, "2001:db8::7")};
  const auto none = chooseGids(table, {});
  REQUIRE_FALSE(none);
  CHECK(contains(none.error().detail(), "GID 256"));
  table.push_back(entry(255, "::ffff:192.0.2.8"));
  CHECK(chosen(table).entries.front().index == 255);
  CHECK(chosen(table).entries.size() == 1);
  const auto named = chooseGids(table, {.index = 256});
  REQUIRE_FALSE(named);
  CHECK(contains(named.error().detail(), "255 is the last"));
}

TEST_CASE("an InfiniBand port uses its own GID, whatever index is named for RoCE") {
  const std::vector<GidEntry> table = {entry(0, "fe80::506b:4b03:c4:1a2e", "", "")};
  CHECK(chosen(table, {.ethernet = false}).entries.front().index == 0);
  CHECK(chosen(table, {.ethernet = false, .index = 3}).entries.front().index == 0);
  CHECK_FALSE(chooseGids({}, {.ethernet = false}));
}

TEST_CASE("the table is read from sysfs, with its holes") {
  const FakeSysfs sysfs;
  sysfs.write("gids/0", "fe80:0000:0000:0000:0000:0000:0000:0001");
  sysfs.write("gid_attrs/types/0", "RoCE v2");
  sysfs.write("gid_attrs/ndevs/0", "eth0");
  sysfs.write("gids/1", "0000:0000:0000:0000:0000:0000:0000:0000");
  sysfs.write("gids/10", "0000:0000:0000:0000:0000:ffff:c000:0207");
  sysfs.write("gids/3", "nonsense");
  const auto table = readGidTable("mlx5_0", 1, {}, sysfs.root);
  REQUIRE(table.size() == 2);
  CHECK(table[0].type == "RoCE v2");
  CHECK(table[0].netdev == "eth0");
  CHECK(table[1].index == 10);
  CHECK(gidText(table[1].gid) == "192.0.2.7");
  CHECK(table[1].type.empty());
  CHECK(readGidTable("mlx5_0", 1, {10}, sysfs.root).size() == 1);
  CHECK(readGidTable("mlx5_1", 1, {}, sysfs.root).empty());
}

TEST_CASE("a lane's address survives the wire, and damage is noticed") {
  const LaneAddress address = someAddress();
  const Bytes bytes = encode(address);
  LaneAddress longest = address;
  longest.pairs.resize(LaneAddress::kMostPairs);
  CHECK(encode(longest).size() <= 256);
  const auto back = decodeLaneAddress(bytes);
  REQUIRE(back);
  CHECK(back->pairs == address.pairs);
  CHECK(back->only(1).pairs == std::vector<PairAddress>{{0xabcdf0, 1}});
  CHECK(back->apart == address.apart);
  CHECK(back->needsHeader == address.needsHeader);
  CHECK(back->lid == address.lid);
  CHECK(back->eceVendor == address.eceVendor);
  CHECK(back->eceOptions == address.eceOptions);
  CHECK(back->mtu == address.mtu);
  CHECK(back->readsServed == address.readsServed);
  CHECK(back->gids == address.gids);
  for (size_t size = 0; size < bytes.size(); size++)
    CHECK_FALSE(decodeLaneAddress(std::span(bytes).first(size)));
  // Version, kind, MTU, whether notifications may come apart, whether it wants a header, count, a queue
  // pair's upper byte.
  for (const size_t at : {0u, 1u, 2u, 4u, 5u, 48u, 52u}) {
    Bytes damaged = bytes;
    damaged[at] = std::byte{0x77};
    CHECK_FALSE(decodeLaneAddress(damaged));
  }
}

TEST_CASE("two ends use the address family that both have") {
  LaneAddress mine = someAddress(), peer = someAddress();
  CHECK(*commonGid(mine, peer) == 0);
  peer.gids[0] = {};
  CHECK(*commonGid(mine, peer) == 1);
  mine.gids[1] = {};
  const auto none = commonGid(mine, peer);
  REQUIRE_FALSE(none);
  CHECK(contains(none.error().detail(), "192.0.2.7"));
  CHECK(contains(none.error().detail(), "2001:db8::7"));
  peer.ethernet = false;
  CHECK(contains(commonGid(mine, peer).error().detail(), "InfiniBand"));
}

TEST_CASE("settings fit what a card takes") {
  Config config;
  config.ibRetryCount = 15;
  CHECK(settingsFrom(config, false, true).retryCount == 7);
  const auto told = retriesWith({.timeout = 22, .retryCount = 7});
  CHECK(told.first == Milliseconds(17'180));
  CHECK(told.all == Milliseconds(137'439));
  CHECK(retriesWith({.timeout = 0}).all == Milliseconds(0));           // the card waits for ever
  CHECK(settingsFrom(config, true, true).retryCount == 6);             // 7 is for ever there
  CHECK(settingsFrom(config, false, true).apart == Apart::never);      // RoCE
  CHECK(settingsFrom(config, false, false).apart == Apart::ifWanted);  // InfiniBand
  for (const int wish : {0, 1}) {
    config.ibAdaptiveRouting = wish;
    for (const bool ethernet : {false, true})
      CHECK(settingsFrom(config, false, ethernet).apart == (wish == 1 ? Apart::ifWanted : Apart::never));
  }
  config.ibServiceLevel = -1;
  CHECK(settingsFrom(config, false, true).serviceLevel == 0);
}

TEST_CASE("a failed completion says what it means and what to check") {
  for (int status = 1; status < 22; status++) {
    const std::string words = statusWords(static_cast<ibv_wc_status>(status), 0x81);
    CHECK(contains(words, "0x81"));
    CHECK(words.size() > 20);
    CHECK(statusErrno(static_cast<ibv_wc_status>(status)) != 0);
  }
  CHECK(contains(statusWords(IBV_WC_RETRY_EXC_ERR, 0), "WEFT_IB_TIMEOUT"));
  CHECK(contains(verbsError("x", "y", ENOMEM).message(), "ulimit -l"));
  CHECK(verbsError("x", "y", ENOMEM).code() == Code::resources);
  CHECK(contains(verbsError("x", "y", EACCES).message(), "/dev/infiniband"));
  CHECK(contains(eventWords(IBV_EVENT_PORT_ERR, "mlx5_0", 2), "port 2 of mlx5_0"));
}

TEST_CASE("the lane table finds what is in it and nothing else") {
  LaneTable<int> table;
  std::map<uint32_t, int> lanes;
  CHECK_FALSE(table.find(1));
  for (uint32_t i = 0; i < 100; i++)
    lanes[i % 2 ? i * 64 : i] = static_cast<int>(i);  // many share their low bits
  for (auto& [number, lane] : lanes) table.insert(number, &lane);
  for (auto& [number, lane] : lanes) CHECK(table.find(number) == &lane);
  CHECK_FALSE(table.find(7));
  for (auto& [number, lane] : lanes)
    if (lane % 3 == 0) table.erase(&lane);
  for (auto& [number, lane] : lanes) CHECK(table.find(number) == (lane % 3 == 0 ? nullptr : &lane));
}

TEST_CASE("a library that is not there or not libibverbs is named, with what to do") {
  Config config;
  config.libibverbs = "/nonexistent/libibverbs.so.1";
  auto made = verbs::makeTransport(config);
  REQUIRE_FALSE(made);
  CHECK(made.error().code() == Code::unavailable);
  CHECK(contains(made.error().message(), "/nonexistent/libibverbs.so.1"));
  CHECK(contains(made.error().message(), "WEFT_LIBIBVERBS"));
  config.libibverbs = "libm.so.6";
  made = verbs::makeTransport(config);
  REQUIRE_FALSE(made);
  CHECK(contains(made.error().message(), "libm.so.6 has no ibv_get_device_list"));
}
