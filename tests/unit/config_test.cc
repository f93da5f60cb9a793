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
  CHECK(config.error().detail() == "WEFT_EAGER_MAX is \"8k\"; allowed: a number, -1 to 65536");
}

TEST_CASE("out-of-range numbers, flags and levels are refused") {
  CHECK_FALSE(read({{"WEFT_EAGER_SLOTS", "65"}}));
  CHECK_FALSE(read({{"WEFT_EAGER_SLOTS", "-1"}}));
  CHECK_FALSE(read({{"WEFT_FALLBACK", "yes"}}));
  CHECK_FALSE(read({{"WEFT_DEBUG", "LOUD"}}));
  CHECK_FALSE(read({{"WEFT_PEER_TIMEOUT", ""}}));
  // A piece that cuts an element would be reduced out of phase.
  CHECK(read({{"WEFT_COLLNET_CHUNK", "4224"}}));
  CHECK(read({{"WEFT_COLLNET_CHUNK", "4100"}}).error().detail().find("a multiple of 128") !=
        std::string::npos);
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

TEST_CASE("NCCL's forced flush is ours") {
  CHECK_FALSE(read({})->forceFlush);
  CHECK(read({{"NCCL_NET_FORCE_FLUSH", "1"}})->forceFlush);
  CHECK_FALSE(read({{"NCCL_NET_FORCE_FLUSH", "0"}})->forceFlush);
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

TEST_CASE("a file sets what the environment leaves unset, and comes before NCCL's variables") {
  const auto file = parseConfigFile("weft.conf",
                                    "# comment\n\n WEFT_IB_TC = 104 # DSCP 26\r\nWEFT_HCA=\"mlx5#1\"\n"
                                    "WEFT_SOCKET_IFNAME = ib");
  REQUIRE(file);
  const std::map<std::string, std::string> environment{{"WEFT_HCA", "efa"}, {"NCCL_SOCKET_IFNAME", "eth"}};
  const Lookup lookup = [&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  };
  const auto config = readConfig(lookup, *file);
  REQUIRE(config);
  CHECK(config->ibTrafficClass == 104);
  CHECK(config->hca == "efa");
  CHECK(config->socketIfname == "ib");
  CHECK(file->find("WEFT_HCA")->value == "mlx5#1");
}

TEST_CASE("where a value came from") {
  const auto file = parseConfigFile("/etc/weft.conf", "WEFT_IB_TC = 104\nWEFT_IB_SL = 3\n");
  REQUIRE(file);
  const Lookup environment = [](const char* name) -> const char* {
    const std::string asked = name;
    if (asked == "WEFT_IB_SL") return "2";
    if (asked == "NCCL_IB_TIMEOUT") return "20";
    if (asked == "NCCL_IB_PKEY") return "much";
    return asked == "NCCL_NET_FORCE_MERGE" ? "a,b" : nullptr;
  };
  const auto from = [&](const std::string& name) {
    for (const ConfigField& field : configFields())
      if (name == field.env) return originOf(field, environment, *file);
    return Origin{};
  };
  CHECK(from("WEFT_IB_TC").where == "/etc/weft.conf:1");
  CHECK(from("WEFT_IB_SL").kind == Origin::Kind::environment);
  CHECK(from("WEFT_IB_TIMEOUT").where == "NCCL_IB_TIMEOUT");
  CHECK(from("WEFT_MERGE_NICS").where == "NCCL_NET_FORCE_MERGE");
  CHECK(from("WEFT_IB_PKEY").kind == Origin::Kind::byDefault);
}

TEST_CASE("what does not fit in a file is named by file and line") {
  const auto detail = [](const char* text) {
    const auto file = parseConfigFile("/etc/weft.conf", text);
    if (!file) return file.error().detail();
    const auto config = readConfig([](const char*) { return nullptr; }, *file);
    return config ? std::string() : config.error().detail();
  };
  CHECK(detail("\nWEFT_EAGER_MAX = 8k\n") ==
        "/etc/weft.conf:2: WEFT_EAGER_MAX is \"8k\"; allowed: a number, -1 to 65536");
  CHECK(detail("WEFT_DEBUG = LOUD") ==
        "/etc/weft.conf:1: WEFT_DEBUG is \"LOUD\"; allowed: NONE, ERROR, WARN, INFO or TRACE");
  CHECK(detail("WEFT_HCA mlx5") == "/etc/weft.conf:1: \"WEFT_HCA mlx5\" is not of the form NAME = value");
  CHECK(detail("export WEFT_HCA=a") ==
        "/etc/weft.conf:1: \"export WEFT_HCA=a\" is not of the form NAME = value");
  CHECK(detail("= 3") == "/etc/weft.conf:1: \"= 3\" is not of the form NAME = value");
  CHECK(detail("WEFT_HCA = a\nWEFT_HCA = b").empty());
}

TEST_CASE("unknown names in a file are reported with line and nearest name") {
  const auto warnings = [](const char* text) { return fileWarnings(*parseConfigFile("f", text)); };
  using Lines = std::vector<std::string>;
  CHECK(warnings("WEFT_PROVIDER = loop").empty());
  CHECK(warnings("\nprovider = loop") ==
        Lines{"f:2: provider is not a setting of weft; the nearest is WEFT_PROVIDER"});
  CHECK(warnings("WEFT_EAGRE_MAX = 1") ==
        Lines{"f:1: WEFT_EAGRE_MAX is not a setting of weft; the nearest is WEFT_EAGER_MAX"});
  CHECK(warnings("NCCL_DEBUG = INFO") ==
        Lines{"f:1: NCCL_DEBUG is not a setting of weft; NCCL's own belong into "
              "/etc/nccl.conf or the environment"});
  CHECK(warnings("WEFT_CONF = g") == Lines{"f:1: WEFT_CONF counts in the environment only"});
  CHECK(warnings("WEFT_HCA = a\nWEFT_HCA = b") ==
        Lines{"f:2: WEFT_HCA stands in line 1 already, which counts for nothing"});
}

TEST_CASE("a named file must be there and readable") {
  const auto load = [](const char* path) {
    return loadConfigFile(
        [=](const char* name) { return std::string(name) == kConfigFileVariable ? path : nullptr; });
  };
  REQUIRE(load(""));
  CHECK(load("")->path.empty());
  for (const char* bad : {"/nonexistent/weft.conf", "/proc", "/dev/zero"}) {
    INFO(bad);
    const auto file = load(bad);
    REQUIRE_FALSE(file);
    CHECK(file.error().detail().find(bad) != std::string::npos);
  }
}

TEST_CASE("unknown variables are reported with the nearest name") {
  const char* const environment[] = {"PATH=/bin", "WEFT_EAGER_MAXX=1", "WEFT_PROVIDER=loop",
                                     "WEFT_TEST_FULL=1", "WEFT_NCCL=/opt/libnccl.so.2"};
  const auto lines = unknownVariables(environment);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0] == "WEFT_EAGER_MAXX is not a setting of weft; the nearest is WEFT_EAGER_MAX");
}
