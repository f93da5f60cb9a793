// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
// What the library exports, and what it says about its devices.
#include <cstring>

#include "tests/abi/driver.h"

using namespace weft::abi;

TEST_CASE("the library exports the tables v6 to v12 and nothing next to them") {
  void* library = openPlugin();
  REQUIRE(library != nullptr);
  for (int version = 0; version < 20; version++) {
    const std::string net = "ncclNetPlugin_v" + std::to_string(version);
    const std::string collNet = "ncclCollNetPlugin_v" + std::to_string(version);
    CHECK((dlsym(library, net.c_str()) != nullptr) == (version >= 6 && version <= 12));
    CHECK((dlsym(library, collNet.c_str()) != nullptr) == (version >= 6 && version <= 12));
  }
  dlclose(library);
}

TEMPLATE_TEST_CASE("every call that NCCL makes without asking is there", "", ALL_TABLES) {
  Driver<TestType> driver;
  const TestType& net = *driver.net;
  CHECK(std::string(net.name) == "weft");
  CHECK(net.init);
  CHECK(net.devices);
  CHECK(net.getProperties);
  CHECK(net.listen);
  CHECK(net.connect);
  CHECK(net.accept);
  CHECK(net.regMr);
  CHECK(net.regMrDmaBuf);
  CHECK(net.deregMr);
  CHECK(net.isend);
  CHECK(net.irecv);
  CHECK(net.iflush);
  CHECK(net.test);
  CHECK(net.closeSend);
  CHECK(net.closeRecv);
  CHECK(net.closeListen);
  if constexpr (kVersion<TestType> >= 7) CHECK(net.irecvConsumed == nullptr);  // requests do not outlive done
  if constexpr (kVersion<TestType> >= 9) CHECK(net.makeVDevice);
  if constexpr (kHasContext<TestType>) CHECK(net.finalize);
  if constexpr (kHasContext<TestType>) CHECK(net.setNetAttr == nullptr);  // nobody would read the hints
}

TEMPLATE_TEST_CASE("getProperties writes every byte and always the same", "", ALL_TABLES) {
  Driver<TestType> driver("loop", "2");
  REQUIRE(driver.init() == ncclSuccess);
  int count = -1;
  REQUIRE(driver.net->devices(&count) == ncclSuccess);
  REQUIRE(count == 2);
  for (int device = 0; device < count; device++) {
    Properties<TestType> first, second;
    std::memset(&first, 0xAA, sizeof first);
    std::memset(&second, 0x55, sizeof second);
    REQUIRE(driver.net->getProperties(device, &first) == ncclSuccess);
    REQUIRE(driver.net->getProperties(device, &second) == ncclSuccess);
    CHECK(std::memcmp(&first, &second, sizeof first) == 0);
  }
  CHECK(driver.finalize() == ncclSuccess);
}

TEMPLATE_TEST_CASE("properties are what NCCL can work with", "", ALL_TABLES) {
  Driver<TestType> driver("loop", "2");
  REQUIRE(driver.init() == ncclSuccess);
  Properties<TestType> properties[2];
  REQUIRE(driver.net->getProperties(0, &properties[0]) == ncclSuccess);
  REQUIRE(driver.net->getProperties(1, &properties[1]) == ncclSuccess);
  CHECK(std::string(properties[0].name) != properties[1].name);
  const auto& p = properties[0];
  CHECK((p.ptrSupport & NCCL_PTR_HOST) != 0);
  CHECK(p.speed > 0);
  CHECK(p.maxRecvs == 8);
  CHECK(p.maxComms > 0);
  if constexpr (requires { p.netDeviceType; }) CHECK(p.netDeviceType == NCCL_NET_DEVICE_HOST);
  if constexpr (requires { p.vProps; }) {
    CHECK(p.vProps.ndevs == 1);
    CHECK(p.vProps.devs[0] == 0);
    CHECK(p.maxP2pBytes >= size_t{1} << 30);
    CHECK(p.maxP2pBytes <= size_t{NCCL_MAX_NET_SIZE_BYTES});
    CHECK(p.maxCollBytes > 0);
    CHECK(p.maxCollBytes <= size_t{NCCL_MAX_NET_SIZE_BYTES});
  }
  if constexpr (requires { p.maxMultiRequestSize; }) CHECK(p.maxMultiRequestSize == 1);
  CHECK(driver.finalize() == ncclSuccess);
}

TEMPLATE_TEST_CASE("a device that is not there has no properties", "", ALL_TABLES) {
  Driver<TestType> driver;
  REQUIRE(driver.init() == ncclSuccess);
  driver.warningsExpected = true;
  Properties<TestType> properties;
  CHECK(driver.net->getProperties(-1, &properties) == ncclInvalidArgument);
  CHECK(driver.net->getProperties(1, &properties) == ncclInvalidArgument);
  CHECK(driver.net->getProperties(0, nullptr) == ncclInvalidArgument);
  CHECK(driver.net->devices(nullptr) == ncclInvalidArgument);
  CHECK(driver.finalize() == ncclSuccess);
}

TEMPLATE_TEST_CASE("a device of more rails than a connection uses connects", "", ncclNet_v9_t,
                   ncclNet_v12_t) {
  setenv("WEFT_MERGE_NICS",
         "loop0,loop1,loop2,loop3,loop4,loop5;loop6,loop7,loop8,loop9,loop10,loop11;"
         "loop12,loop13,loop14,loop15,loop16,loop17;loop18,loop19,loop20,loop21,loop22,loop23",
         1);
  Driver<TestType> driver("loop", "24");
  REQUIRE(driver.init() == ncclSuccess);
  unsetenv("WEFT_MERGE_NICS");
  decltype(Properties<TestType>::vProps) members{};
  members.ndevs = 4;
  for (int i = 0; i < 4; i++) members.devs[i] = i;
  int device = -1;
  REQUIRE(driver.net->makeVDevice(&device, &members) == ncclSuccess);
  {
    Connection<TestType> connection(driver);
    connection.open(device);
    std::fill(connection.source.begin(), connection.source.end(), 9);
    void* receiving = connection.postReceive({connection.sink.size()}, {1}, {0});
    connection.finish(connection.postSend(connection.source.size(), 1), receiving, nullptr);
    CHECK(connection.sink == connection.source);
  }
  CHECK(driver.finalize() == ncclSuccess);
}

TEMPLATE_TEST_CASE("two devices become a virtual one", "", ncclNet_v9_t, ncclNet_v10_t, ncclNet_v11_t,
                   ncclNet_v12_t) {
  Driver<TestType> driver("loop", "2");
  REQUIRE(driver.init() == ncclSuccess);
  decltype(Properties<TestType>::vProps) members{};
  members.ndevs = 2;
  members.devs[1] = 1;
  int device = -1;
  REQUIRE(driver.net->makeVDevice(&device, &members) == ncclSuccess);
  CHECK(device == 2);
  int count = 0;
  CHECK(driver.net->devices(&count) == ncclSuccess);
  CHECK(count == 3);
  Properties<TestType> properties;
  REQUIRE(driver.net->getProperties(2, &properties) == ncclSuccess);
  CHECK(properties.vProps.ndevs == 2);
  CHECK(properties.vProps.devs[0] == 0);
  CHECK(properties.vProps.devs[1] == 1);
  members.ndevs = 9;
  CHECK(driver.net->makeVDevice(&device, &members) == ncclInvalidArgument);
  members.ndevs = 0;
  CHECK(driver.net->makeVDevice(&device, &members) == ncclInvalidArgument);
  CHECK(driver.net->makeVDevice(nullptr, &members) == ncclInvalidArgument);
  CHECK(driver.finalize() == ncclSuccess);
}
