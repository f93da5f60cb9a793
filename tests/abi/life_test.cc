// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
// Being initialised and finalised, in every order and with every setting NCCL and its users bring about.
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/abi/connection.h"
#include "tests/abi/process_facts.h"

using namespace weft::abi;

TEMPLATE_TEST_CASE("init and finalize work any number of times", "", ALL_TABLES) {
  Driver<TestType> driver;
  for (int i = 0; i < 20; i++) {
    REQUIRE(driver.init() == ncclSuccess);
    int count = 0;
    CHECK(driver.net->devices(&count) == ncclSuccess);
    CHECK(count == 1);
    if (i % 5 == 0) passOneMessage(driver);
    CHECK(driver.finalize() == ncclSuccess);
  }
}

TEMPLATE_TEST_CASE("several threads initialise, connect and finalise at once", "", ncclNet_v8_t,
                   ncclNet_v12_t) {
  Driver<TestType> driver;
  std::array<int, 8> passed{};
  std::vector<std::thread> workers;
  for (int& mine : passed)
    workers.emplace_back([&driver, &mine] {
      const TestType* net = driver.net;
      void* context = nullptr;
      Handle handle{};
      void* listener = nullptr;
      bool fine = true;
      for (int i = 0; i < 5; i++) {
        if constexpr (kHasContext<TestType>) {
          ncclNetCommConfig_v11_t config{NCCL_NET_TRAFFIC_CLASS_UNDEF};
          fine &= net->init(&context, 1, &config, &recordLine, &noProfiler) == ncclSuccess;
          fine &= net->listen(context, 0, handle.data(), &listener) == ncclSuccess;
          fine &= net->closeListen(listener) == ncclSuccess;
          fine &= net->finalize(context) == ncclSuccess;
        } else {
          fine &= net->init(&recordLine) == ncclSuccess;
          fine &= net->listen(0, handle.data(), &listener) == ncclSuccess;
          fine &= net->closeListen(listener) == ncclSuccess;
        }
      }
      mine = fine;
    });
  for (std::thread& worker : workers) worker.join();
  for (const int mine : passed) CHECK(mine == 1);
}

TEMPLATE_TEST_CASE("finalize takes along what an abort left open", "", ncclNet_v11_t, ncclNet_v12_t) {
  Driver<TestType> driver;
  const std::set<int> threadsBefore = threads();
  REQUIRE(driver.init() == ncclSuccess);
  Connection<TestType> connection(driver);
  connection.open();
  Handle handle{};
  void* listener = nullptr;
  REQUIRE(driver.listen(0, &handle, &listener) == ncclSuccess);
  void* receiving = connection.postReceive({1000}, {1}, {0});
  CHECK(!connection.isDone(receiving, nullptr));
  CHECK(driver.finalize() == ncclSuccess);
  CHECK(settledAt(threadsBefore));
  connection.send = connection.receive = connection.sourceMemory = connection.sinkMemory = nullptr;
}

TEMPLATE_TEST_CASE("a provider that is not there means no devices, and why", "", ALL_TABLES) {
  Driver<TestType> driver("nosuchfabric");
  driver.warningsExpected = true;
  REQUIRE(driver.init() == ncclSuccess);
  int count = -1;
  CHECK(driver.net->devices(&count) == ncclSuccess);
  CHECK(count == 0);
  CHECK(linesOf(NCCL_LOG_WARN).find("nosuchfabric") != std::string::npos);
  Handle handle{};
  void* listener = &handle;
  CHECK(driver.listen(0, &handle, &listener) == ncclSystemError);
  CHECK(listener == nullptr);
  CHECK(driver.finalize() == ncclSuccess);
}

TEMPLATE_TEST_CASE("a bad setting means no devices, and which", "", ncclNet_v8_t, ncclNet_v12_t) {
  Driver<TestType> driver("loop", "many");
  driver.warningsExpected = true;
  REQUIRE(driver.init() == ncclSuccess);
  int count = -1;
  CHECK(driver.net->devices(&count) == ncclSuccess);
  CHECK(count == 0);
  CHECK(linesOf(NCCL_LOG_WARN).find("WEFT_LOOP_RAILS") != std::string::npos);
  CHECK(driver.finalize() == ncclSuccess);
}

TEMPLATE_TEST_CASE("one line says what was taken, and unknown settings are named", "", ncclNet_v8_t,
                   ncclNet_v12_t) {
  setenv("WEFT_PROVIDR", "x", 1);
  Driver<TestType> driver;
  driver.warningsExpected = true;
  REQUIRE(driver.init() == ncclSuccess);
  unsetenv("WEFT_PROVIDR");
  CHECK(linesOf(NCCL_LOG_INFO).find("over loop") != std::string::npos);
  CHECK(linesOf(NCCL_LOG_WARN).find("WEFT_PROVIDR") != std::string::npos);
  CHECK(countOf(NCCL_LOG_WARN) == 1);
  CHECK(driver.finalize() == ncclSuccess);
}

// NCCL has a rank accept when it has the handles of all its peers: one that comes late holds up the others.
TEMPLATE_TEST_CASE("a connection whose other end accepts late is made", "", ncclNet_v8_t, ncclNet_v12_t) {
  setenv("WEFT_CONNECT_TIMEOUT", "500", 1);
  Driver<TestType> driver;
  REQUIRE(driver.init() == ncclSuccess);
  unsetenv("WEFT_CONNECT_TIMEOUT");
  Handle handle{};
  void *listener = nullptr, *send = nullptr, *receive = nullptr;
  REQUIRE(driver.listen(0, &handle, &listener) == ncclSuccess);
  for (int i = 0; i < 150; i++) {
    REQUIRE(driver.connect(0, handle.data(), &send) == ncclSuccess);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  CHECK(send == nullptr);
  CHECK(until([&] {
    if (!send) REQUIRE(driver.connect(0, handle.data(), &send) == ncclSuccess);
    if (!receive) REQUIRE(driver.accept(listener, &receive) == ncclSuccess);
    return send && receive;
  }));
  CHECK(driver.net->closeListen(listener) == ncclSuccess);
  CHECK(driver.net->closeSend(send) == ncclSuccess);
  CHECK(driver.net->closeRecv(receive) == ncclSuccess);
  CHECK(driver.finalize() == ncclSuccess);
}

namespace {

// The logger of another copy of NCCL.
std::atomic<int> linesOfOther{0};
void countLine(ncclDebugLogLevel, unsigned long, const char*, int, const char*, ...) {
  linesOfOther++;
}

}  // namespace

// Each copy of NCCL in a process has a logger of its own, and may be unloaded when its contexts are closed.
TEMPLATE_TEST_CASE("lines go to the newest logger of those whose contexts are there", "", ncclNet_v11_t,
                   ncclNet_v12_t) {
  Driver<TestType> driver;
  driver.warningsExpected = true;
  REQUIRE(driver.init() == ncclSuccess);
  void* other = nullptr;
  ncclNetCommConfig_v11_t config{NCCL_NET_TRAFFIC_CLASS_UNDEF};
  REQUIRE(driver.net->init(&other, 2, &config, &countLine, &noProfiler) == ncclSuccess);
  const auto warn = [&] { CHECK(driver.net->closeSend(&driver) == ncclInvalidArgument); };
  linesOfOther = 0;
  warn();
  CHECK(linesOfOther > 0);
  CHECK(countOf(NCCL_LOG_WARN) == 0);
  SECTION("the last one goes first") {
    REQUIRE(driver.net->finalize(other) == ncclSuccess);
    linesOfOther = 0;
    warn();
    CHECK(linesOfOther == 0);
    CHECK(countOf(NCCL_LOG_WARN) == 1);
    CHECK(driver.finalize() == ncclSuccess);
  }
  SECTION("the first one goes first") {
    REQUIRE(driver.finalize() == ncclSuccess);
    linesOfOther = 0;
    warn();
    CHECK(linesOfOther > 0);
    CHECK(countOf(NCCL_LOG_WARN) == 0);
    CHECK(driver.net->finalize(other) == ncclSuccess);
  }
  linesOfOther = 0;
  forgetLines();
  CHECK(driver.net->finalize(&driver) == ncclInvalidArgument);
  CHECK(linesOfOther == 0);
  CHECK(countOf(NCCL_LOG_WARN) == 0);
}

TEMPLATE_TEST_CASE("a logger that is null is no logger", "", ALL_TABLES) {
  Driver<TestType> driver;
  REQUIRE(driver.init(nullptr) == ncclSuccess);
  passOneMessage(driver);
  CHECK(driver.finalize() == ncclSuccess);
  CHECK(linesOf(NCCL_LOG_INFO) == "");
}

TEST_CASE("two versions in one process do not get into each other's way") {
  Driver<ncclNet_v8_t> old;
  Driver<ncclNet_v12_t> current;
  REQUIRE(old.init() == ncclSuccess);
  REQUIRE(current.init() == ncclSuccess);
  Connection<ncclNet_v8_t> lasting(old, 4096);
  lasting.open();
  passOneMessage(current);
  CHECK(current.finalize() == ncclSuccess);
  void* receiving = lasting.postReceive({100}, {1}, {0});
  lasting.finish(lasting.postSend(100, 1), receiving, nullptr);
  lasting.close();
}
