// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/config.h"

#include <map>

#include "tests/support/catch.h"

using namespace weft;

namespace {

Result<Config> read(const std::map<std::string, std::string>& values) {
  return readConfig([&](const char* name) {
    const auto found = values.find(name);
    return found == values.end() ? nullptr : found->second.c_str();
  });
}

}  // namespace

TEST_CASE("defaults hold when nothing is set") {
  const auto config = read({});
  REQUIRE(config);
  CHECK(config->provider.empty());
  CHECK(config->fallback);
  CHECK(config->peerTimeout == Milliseconds(60000));
}

TEST_CASE("every row accepts its own default") {
  const Config defaults;
  for (const ConfigField& field : configFields()) {
    INFO(field.env);
    CHECK(read({{field.env, valueText(defaults, field)}}));
  }
}

TEST_CASE("a bad value names variable, value and what is allowed") {
  const auto config = read({{"WEFT_EAGER_MAX", "8k"}});
  REQUIRE_FALSE(config);
  CHECK(config.error().code() == Code::config);
  CHECK(config.error().detail() == "WEFT_EAGER_MAX is \"8k\"; allowed: a number, 0 to 65536");
}

TEST_CASE("out-of-range numbers, flags and levels are refused") {
  CHECK_FALSE(read({{"WEFT_EAGER_SLOTS", "65"}}));
  CHECK_FALSE(read({{"WEFT_EAGER_SLOTS", "-1"}}));
  CHECK_FALSE(read({{"WEFT_FALLBACK", "yes"}}));
  CHECK_FALSE(read({{"WEFT_DEBUG", "LOUD"}}));
  CHECK_FALSE(read({{"WEFT_PEER_TIMEOUT", ""}}));
}

TEST_CASE("NCCL's variable is honoured only when ours is unset") {
  CHECK(read({{"NCCL_SOCKET_IFNAME", "eth"}})->socketIfname == "eth");
  CHECK(read({{"NCCL_SOCKET_IFNAME", "eth"}, {"WEFT_SOCKET_IFNAME", "ib"}})->socketIfname == "ib");
}

TEST_CASE("cards that NCCL is told to merge by name are left apart for it") {
  CHECK(read({})->mergeNics == "auto");
  CHECK(read({{"NCCL_NET_MERGE_LEVEL", "LOC"}})->mergeNics == "LOC");
  CHECK(read({{"NCCL_NET_FORCE_MERGE", "mlx5_0:1,mlx5_1:1"}})->mergeNics == "off");
  CHECK(read({{"NCCL_NET_FORCE_MERGE", ""}})->mergeNics == "auto");
  CHECK(read({{"NCCL_NET_FORCE_MERGE", "a,b"}, {"WEFT_MERGE_NICS", "port"}})->mergeNics == "port");
}

TEST_CASE("numbers may be hexadecimal") {
  CHECK(read({{"WEFT_IB_TC", "0x68"}})->ibTrafficClass == 104);
  CHECK_FALSE(read({{"WEFT_IB_TC", "0x"}}));
  CHECK_FALSE(read({{"WEFT_IB_TC", "0x100"}}));
}

TEST_CASE("NCCL's variables are read as NCCL reads them") {
  const auto trafficClass = [](const char* text) { return read({{"NCCL_IB_TC", text}})->ibTrafficClass; };
  CHECK(trafficClass("104") == 104);
  CHECK(trafficClass("0x68") == 104);
  CHECK(trafficClass("0X68") == 104);
  CHECK(trafficClass("0150") == 104);
  CHECK(trafficClass("+104") == 104);
  CHECK(trafficClass(" 104 # DSCP 26") == 104);
  CHECK(trafficClass("-1") == -1);
  CHECK(trafficClass("0") == 0);
  CHECK_FALSE(read({{"NCCL_IB_ECE_ENABLE", "0"}})->ibEce);
  CHECK(read({{"NCCL_IB_ECE_ENABLE", "2"}})->ibEce);
}

TEST_CASE("what does not fit in one of NCCL's variables leaves the default and is said") {
  const auto unused = [](const char* name, const char* value) {
    return unusedAliases([&](const char* asked) { return std::string(asked) == name ? value : nullptr; });
  };
  CHECK(read({{"NCCL_IB_TC", ""}})->ibTrafficClass == -1);
  CHECK(unused("NCCL_IB_TC", "").empty());
  CHECK(unused("NCCL_IB_TC", "104").empty());
  for (const char* bad : {"high", "256", "0x", "99999999999999999999", "-2"}) {
    INFO(bad);
    CHECK(read({{"NCCL_IB_TC", bad}})->ibTrafficClass == -1);
    CHECK(unused("NCCL_IB_TC", bad).size() == 1);
  }
  CHECK(read({{"NCCL_IB_AR_THRESHOLD", "-2"}})->ibAdaptiveMinBytes == 8192);
  CHECK(read({{"NCCL_NET_MERGE_LEVEL", "NEAR"}})->mergeNics == "auto");
  CHECK(
      unused("NCCL_NET_MERGE_LEVEL", "NEAR") ==
      std::vector<std::string>{
          "NCCL_NET_MERGE_LEVEL is \"NEAR\", which weft has no use for; WEFT_MERGE_NICS stays at \"auto\""});
  CHECK(unused("WEFT_IB_TC", "high").empty());
}

TEST_CASE("unknown variables are reported with the nearest name") {
  const char* const environment[] = {"PATH=/bin", "WEFT_EAGER_MAXX=1", "WEFT_PROVIDER=loop",
                                     "WEFT_TEST_FULL=1"};
  const auto lines = unknownVariables(environment);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0] == "WEFT_EAGER_MAXX is not a setting of weft; the nearest is WEFT_EAGER_MAX");
}
