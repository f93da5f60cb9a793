// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstdlib>

#include "tests/support/catch.h"
#include "tests/system/ofi/lanes.h"

using namespace weft;
using namespace weft::test;

// A host with a card, and with bridges that have the same address on every such host. Runs inside namespaces
// of its own (tests/unit/in_own_network).
namespace {

void run(const std::string& command) {
  INFO(command);
  REQUIRE(std::system(command.c_str()) == 0);
}

void addInterface(const std::string& name, const std::string& type, const std::string& address) {
  run("ip link add " + name + " type " + type);
  run("ip addr add " + address + "/24 dev " + name);
  run("ip link set " + name + " up");
}

std::vector<std::string> namesOf(const Config& config, const char* provider = WEFT_OWN_TCP) {
  auto transport = OfiSide::REQUIRED(ofi::makeTransport(provider, config));
  std::vector<std::string> names;
  for (const DeviceInfo& info : OfiSide::REQUIRED(transport->discover())) names.push_back(info.name);
  return names;
}

}  // namespace

TEST_CASE("bridges that lead to no other host are no rails unless they are named") {
  addInterface("eth9", "veth peer name peer9", "198.51.100.1");
  run("ip link set peer9 up");
  addInterface("docker0", "bridge", "172.17.0.1");
  addInterface("virbr0", "bridge", "192.168.122.1");
  Config config;
  const auto found = namesOf(config);
  const auto has = [&](const char* name) { return std::count(found.begin(), found.end(), name) == 1; };
  CHECK(has("eth9"));
  CHECK_FALSE(has("docker0"));
  CHECK_FALSE(has("virbr0"));
  config.socketIfname = "virbr";
  CHECK(namesOf(config) == std::vector<std::string>{"virbr0"});
}

TEST_CASE("names of RDMA cards leave out neither shared memory nor network cards") {
  Config config;
  const std::string provider = GENERATE(WEFT_OWN_TCP, "shm");
  const auto all = namesOf(config, provider.c_str());
  REQUIRE_FALSE(all.empty());
  config.hca = GENERATE("mlx5", "=mlx5_0:1", "^mlx5_1");
  CHECK(namesOf(config, provider.c_str()) == all);
  config.hca = "=" + all.front();
  CHECK(namesOf(config, provider.c_str()) == std::vector<std::string>{all.front()});
}
