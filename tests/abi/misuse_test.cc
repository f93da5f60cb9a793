// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
// Arguments that are null, damaged or somebody else's: an error, never a crash, and nothing left behind.
#include <algorithm>
#include <limits>

#include "tests/abi/connection.h"

using namespace weft::abi;

TEMPLATE_TEST_CASE("closing what never was is fine", "", ALL_TABLES) {
  Driver<TestType> driver;
  REQUIRE(driver.init() == ncclSuccess);
  CHECK(driver.net->closeSend(nullptr) == ncclSuccess);
  CHECK(driver.net->closeRecv(nullptr) == ncclSuccess);
  CHECK(driver.net->closeListen(nullptr) == ncclSuccess);
  CHECK(driver.net->deregMr(nullptr, nullptr) == ncclSuccess);
  CHECK(driver.finalize() == ncclSuccess);
}

TEMPLATE_TEST_CASE("a listener nobody connected to closes", "", ALL_TABLES) {
  Driver<TestType> driver;
  REQUIRE(driver.init() == ncclSuccess);
  Handle handle{};
  void* listener = nullptr;
  REQUIRE(driver.listen(0, &handle, &listener) == ncclSuccess);
  void* comm = &handle;
  CHECK(driver.accept(listener, &comm) == ncclSuccess);
  CHECK(comm == nullptr);
  CHECK(driver.net->closeListen(listener) == ncclSuccess);
  CHECK(driver.finalize() == ncclSuccess);
}

TEMPLATE_TEST_CASE("a comm closed twice is an error the second time", "", ALL_TABLES) {
  Driver<TestType> driver;
  REQUIRE(driver.init() == ncclSuccess);
  Connection<TestType> connection(driver);
  connection.open();
  void* send = connection.send;
  connection.close();
  driver.warningsExpected = true;
  CHECK(driver.net->closeSend(send) == ncclInvalidArgument);
  CHECK(driver.finalize() == ncclSuccess);
}

TEMPLATE_TEST_CASE("connection calls refuse null", "", ALL_TABLES) {
  Driver<TestType> driver;
  REQUIRE(driver.init() == ncclSuccess);
  driver.warningsExpected = true;
  Handle handle{};
  void* out = &handle;
  CHECK(driver.listen(0, &handle, nullptr) == ncclInvalidArgument);
  CHECK(driver.listen(77, &handle, &out) == ncclInvalidArgument);
  CHECK(out == nullptr);
  out = &handle;
  CHECK(driver.connect(0, nullptr, &out) == ncclInvalidArgument);
  CHECK(out == nullptr);
  CHECK(driver.connect(0, handle.data(), nullptr) == ncclInvalidArgument);
  out = &handle;
  CHECK(driver.accept(nullptr, &out) == ncclInvalidArgument);
  CHECK(out == nullptr);
  CHECK(driver.finalize() == ncclSuccess);
}

TEMPLATE_TEST_CASE("a damaged handle is an error and no comm", "", ALL_TABLES) {
  Driver<TestType> driver;
  REQUIRE(driver.init() == ncclSuccess);
  driver.warningsExpected = true;
  Handle handle{};
  void* listener = nullptr;
  REQUIRE(driver.listen(0, &handle, &listener) == ncclSuccess);
  const std::byte damage = GENERATE(std::byte{0}, std::byte{0xff}, std::byte{0x5a});
  Handle bad = handle;
  for (size_t i = 0; i < 16; i++) bad[i] ^= damage;
  if (damage == std::byte{0}) bad.fill(std::byte{0});
  void* comm = &handle;
  CHECK(driver.connect(0, bad.data(), &comm) != ncclSuccess);
  CHECK(comm == nullptr);
  CHECK(driver.net->closeSend(comm) == ncclSuccess);
  CHECK(driver.net->closeListen(listener) == ncclSuccess);
  CHECK(driver.finalize() == ncclSuccess);
}

TEMPLATE_TEST_CASE("memory that cannot be registered is refused without a warning", "", ALL_TABLES) {
  Driver<TestType> driver;
  REQUIRE(driver.init() == ncclSuccess);
  Connection<TestType> connection(driver);
  connection.open();
  const TestType& net = *driver.net;
  void* comm = connection.send;
  void* data = connection.source.data();
  void* memory = &driver;
  CHECK(net.regMr(comm, nullptr, 100, NCCL_PTR_HOST, &memory) == ncclInvalidArgument);
  CHECK(net.regMr(comm, data, 0, NCCL_PTR_HOST, &memory) == ncclInvalidArgument);
  CHECK(net.regMr(comm, data, 100, 0, &memory) == ncclInvalidArgument);
  CHECK(net.regMr(comm, data, 100, 1 << 20, &memory) == ncclInvalidArgument);
  CHECK(memory == nullptr);
  CHECK(net.regMr(comm, data, 100, NCCL_PTR_CUDA, &memory) != ncclSuccess);
  CHECK(memory == nullptr);
  CHECK(net.regMr(comm, data, 100, NCCL_PTR_HOST, nullptr) == ncclInvalidArgument);
  CHECK(net.regMr(nullptr, data, 100, NCCL_PTR_HOST, &memory) == ncclInvalidArgument);
  CHECK(net.regMrDmaBuf(comm, data, 100, NCCL_PTR_CUDA, 0, -1, &memory) == ncclInvalidArgument);
  if constexpr (kVersion<TestType> < 8)
    CHECK(net.regMr(comm, data, -100, NCCL_PTR_HOST, &memory) == ncclInvalidArgument);
  connection.close();
  CHECK(driver.finalize() == ncclSuccess);
}

TEMPLATE_TEST_CASE("data calls refuse what cannot be", "", ALL_TABLES) {
  Driver<TestType> driver;
  REQUIRE(driver.init() == ncclSuccess);
  Connection<TestType> connection(driver), other(driver);  // what is refused here is told to the other end
  connection.open();
  other.open();
  driver.warningsExpected = true;
  void* data = connection.source.data();
  void* memory = connection.sourceMemory;
  void* request = data;
  CHECK(driver.isend(connection.receive, data, 1, 0, memory, &request) == ncclInvalidArgument);
  CHECK(request == nullptr);
  CHECK(driver.isend(connection.send, data, size_t{1} << 31, 0, memory, &request) == ncclInvalidArgument);
  CHECK(driver.isend(connection.send, data, 1, 0, nullptr, &request) == ncclInvalidArgument);
  CHECK(driver.isend(connection.send, data, 1, 0, memory, nullptr) == ncclInvalidArgument);
  CHECK(driver.isend(nullptr, data, 1, 0, memory, &request) == ncclInvalidArgument);
  const std::vector<void*> nine(9, other.sink.data()), memories(9, other.sinkMemory);
  request = data;
  CHECK(driver.irecv(other.receive, nine, std::vector<size_t>(9, 1), std::vector<int>(9), memories,
                     &request) == ncclInvalidArgument);
  CHECK(request == nullptr);
  CHECK(driver.irecv(other.receive, {}, {}, {}, {}, &request) == ncclInvalidArgument);
  CHECK(driver.irecv(other.receive, {data}, {size_t{1} << 31}, {0}, {memory}, &request) ==
        ncclInvalidArgument);
  if constexpr (kVersion<TestType> < 9)
    CHECK(driver.isend(connection.send, data, std::numeric_limits<size_t>::max(), 0, memory, &request) ==
          ncclInvalidArgument);
  int done = 77;
  CHECK(driver.net->test(nullptr, &done, nullptr) == ncclInvalidArgument);
  CHECK(done == 0);
  other.close();
  connection.close();
  CHECK(driver.finalize() == ncclSuccess);
}

TEMPLATE_TEST_CASE("a request that was done is dead", "", ALL_TABLES) {
  Driver<TestType> driver;
  REQUIRE(driver.init() == ncclSuccess);
  Connection<TestType> connection(driver);
  connection.open();
  void* receiving = connection.postReceive({10}, {1}, {0});
  connection.finish(connection.postSend(10, 1), receiving, nullptr);
  driver.warningsExpected = true;
  int done = 77;
  CHECK(driver.net->test(receiving, &done, nullptr) == ncclInvalidArgument);
  CHECK(done == 0);
  connection.close();
  CHECK(driver.finalize() == ncclSuccess);
}

TEMPLATE_TEST_CASE("somebody else's context is refused", "", ncclNet_v11_t, ncclNet_v12_t) {
  Driver<TestType> driver;
  REQUIRE(driver.init() == ncclSuccess);
  driver.warningsExpected = true;
  std::array<uint64_t, 32> foreign{};
  Handle handle{};
  void* out = &handle;
  for (void* context : {static_cast<void*>(foreign.data()), static_cast<void*>(nullptr)}) {
    CHECK(driver.net->listen(context, 0, handle.data(), &out) == ncclInvalidArgument);
    CHECK(out == nullptr);
    CHECK(driver.net->connect(context, 0, handle.data(), &out, nullptr) == ncclInvalidArgument);
  }
  CHECK(driver.net->finalize(foreign.data()) == ncclInvalidArgument);
  CHECK(driver.net->finalize(nullptr) == ncclSuccess);
  void* context = driver.context;
  CHECK(driver.finalize() == ncclSuccess);
  CHECK(driver.net->finalize(context) == ncclInvalidArgument);
  CHECK(driver.net->listen(context, 0, handle.data(), &out) == ncclInvalidArgument);
}

TEMPLATE_TEST_CASE("memory taken away under a posted receive is not written any more", "", ALL_TABLES) {
  Driver<TestType> driver;
  REQUIRE(driver.init() == ncclSuccess);
  driver.warningsExpected = true;  // whether the sender hears of it as an error is up to the protocol
  Connection<TestType> connection(driver);
  connection.open();
  const size_t bytes = GENERATE(size_t{100}, size_t{1} << 20);
  std::fill(connection.source.begin(), connection.source.end(), static_cast<unsigned char>(1));
  connection.postReceive({bytes}, {1}, {0});
  REQUIRE(driver.net->deregMr(connection.receive, std::exchange(connection.sinkMemory, nullptr)) ==
          ncclSuccess);
  void* request = nullptr;
  ncclResult_t result = ncclSuccess;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  for (int done = 0; !done && result == ncclSuccess && std::chrono::steady_clock::now() < end;) {
    if (request)
      result = driver.net->test(request, &done, nullptr);
    else
      result = driver.isend(connection.send, connection.source.data(), bytes, 1, connection.sourceMemory,
                            &request);
  }
  CHECK(std::count(connection.sink.begin(), connection.sink.end(), 0) ==
        static_cast<ptrdiff_t>(connection.sink.size()));
  connection.close();
  CHECK(driver.finalize() == ncclSuccess);
}
