// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
// Data through both ends of a connection in one process.
#include <algorithm>
#include <numeric>
#include <thread>

#include "tests/abi/connection.h"

using namespace weft::abi;

namespace {

void* const kOptionalCompletion = reinterpret_cast<void*>(NCCL_NET_OPTIONAL_RECV_COMPLETION);

// Looks at a buffer that is being written, as a GPU does; a thread sanitizer is not to be told.
[[gnu::noinline]] __attribute__((no_sanitize("thread"))) unsigned char peek(
    const volatile unsigned char* byte) {
  return *byte;
}

}  // namespace

TEMPLATE_TEST_CASE("messages of all sizes arrive whole", "", ALL_TABLES) {
  Driver<TestType> driver;
  REQUIRE(driver.init() == ncclSuccess);
  Connection<TestType> connection(driver);
  connection.open();
  std::iota(connection.source.begin(), connection.source.end(), static_cast<unsigned char>(1));
  for (const size_t bytes :
       {size_t{0}, size_t{1}, size_t{129}, size_t{8192}, size_t{65537}, size_t{1} << 20}) {
    std::fill(connection.sink.begin(), connection.sink.end(), static_cast<unsigned char>(0));
    int size = -1;
    void* receiving = connection.postReceive({connection.sink.size()}, {7}, {0});
    void* sending = connection.postSend(bytes, 7);
    connection.finish(sending, receiving, &size);
    CHECK(size == static_cast<int>(bytes));
    CHECK(std::equal(connection.source.begin(), connection.source.begin() + static_cast<ptrdiff_t>(bytes),
                     connection.sink.begin()));
    CHECK(std::count(connection.sink.begin() + static_cast<ptrdiff_t>(bytes), connection.sink.end(), 0) ==
          static_cast<ptrdiff_t>(connection.sink.size() - bytes));
  }
  connection.close();
  CHECK(driver.finalize() == ncclSuccess);
}

TEMPLATE_TEST_CASE("a group of eight receives takes sends in any order", "", ALL_TABLES) {
  Driver<TestType> driver;
  REQUIRE(driver.init() == ncclSuccess);
  Connection<TestType> connection(driver);
  connection.open();
  constexpr size_t kPiece = 20000;
  std::vector<size_t> bytes(8, kPiece), offsets(8);
  std::vector<int> tags(8);
  for (size_t i = 0; i < 8; i++) {
    tags[i] = static_cast<int>(100 + i);
    offsets[i] = i * kPiece;
    std::fill_n(connection.source.begin() + static_cast<ptrdiff_t>(offsets[i]), kPiece,
                static_cast<unsigned char>(i + 1));
  }
  void* receiving = connection.postReceive(bytes, tags, offsets);
  std::array<int, 8> sizes{};
  for (const size_t i : {5u, 0u, 7u, 2u, 1u, 6u, 4u}) {
    void* sending = connection.postSend(kPiece - i, tags[i], offsets[i]);
    connection.finish(sending, nullptr, nullptr);
    CHECK(!connection.isDone(receiving, sizes.data()));
  }
  connection.finish(connection.postSend(kPiece - 3, tags[3], offsets[3]), receiving, sizes.data());
  for (size_t i = 0; i < 8; i++) {
    CHECK(sizes[i] == static_cast<int>(kPiece - i));
    CHECK(connection.sink[offsets[i]] == i + 1);
    CHECK(connection.sink[offsets[i] + kPiece - i - 1] == i + 1);
  }
  connection.close();
  CHECK(driver.finalize() == ncclSuccess);
}

TEMPLATE_TEST_CASE("thirty-two messages are in flight at a time", "", ALL_TABLES) {
  Driver<TestType> driver;
  REQUIRE(driver.init() == ncclSuccess);
  Connection<TestType> connection(driver);
  connection.open();
  constexpr size_t kMessages = 32, kPiece = 30000;
  std::vector<void*> sending, receiving;
  for (size_t i = 0; i < kMessages; i++) {
    connection.source[i * kPiece] = static_cast<unsigned char>(i + 1);
    receiving.push_back(connection.postReceive({kPiece}, {1}, {i * kPiece}));
    sending.push_back(connection.postSend(kPiece, 1, i * kPiece));
  }
  for (size_t i = 0; i < kMessages; i++) {
    int size = 0;
    connection.finish(sending[i], receiving[i], &size);
    CHECK(size == static_cast<int>(kPiece));
    CHECK(connection.sink[i * kPiece] == i + 1);
  }
  connection.close();
  CHECK(driver.finalize() == ncclSuccess);
}

TEMPLATE_TEST_CASE("the request is always written, whatever lay there", "", ALL_TABLES) {
  Driver<TestType> driver;
  REQUIRE(driver.init() == ncclSuccess);
  Connection<TestType> connection(driver);
  connection.open();
  void* sink = connection.sink.data();
  void* receiving = nullptr;
  REQUIRE(until([&] {
    receiving = kOptionalCompletion;
    REQUIRE(driver.irecv(connection.receive, {sink}, {100}, {3}, {connection.sinkMemory}, &receiving) ==
            ncclSuccess);
    REQUIRE(receiving != kOptionalCompletion);
    return receiving != nullptr;
  }));
  connection.source[99] = 42;
  connection.finish(connection.postSend(100, 3), receiving, nullptr);
  // Done means that the data is here, with the hint too: nobody polls for a receive that was said to be done.
  CHECK(peek(&connection.sink[99]) == 42);

  int stale = 0;
  void* request = &stale;
  std::array<void*, 1> data{sink}, memory{connection.sinkMemory};
  std::array<int, 1> sizes{100};
  REQUIRE(driver.net->iflush(connection.receive, 1, data.data(), sizes.data(), memory.data(), &request) ==
          ncclSuccess);
  CHECK(request != &stale);
  if (request) connection.finish(nullptr, request, nullptr);
  connection.close();
  CHECK(driver.finalize() == ncclSuccess);
}

namespace {

int starts = 0, stops = 0;
bool wanted = true;
int parent = 0, event = 0;

ncclResult_t countEvents(void** eventHandle, int type, void* parentHandle, int64_t pluginId, void* extData) {
  CHECK(pluginId == (NCCL_PROFILER_NET_TYPE_SOCK | NCCL_PROFILER_NET_SOCKET_VER));
  CHECK(static_cast<ncclProfilerNetSockDescr_v1_t*>(extData)->sock.length == 5000);
  if (type == ncclProfilerNetEventStart) {
    CHECK(parentHandle == &parent);
    CHECK(*eventHandle == nullptr);
    if (wanted) *eventHandle = &event;
    starts++;
  } else {
    CHECK(*eventHandle == &event);
    stops++;
  }
  return ncclSuccess;
}

}  // namespace

TEMPLATE_TEST_CASE("a profiler hears of each send and receive it wants", "", ncclNet_v10_t, ncclNet_v11_t,
                   ncclNet_v12_t) {
  wanted = GENERATE(true, false);
  const bool withParent = GENERATE(true, false);
  starts = stops = 0;
  Driver<TestType> driver;
  REQUIRE(driver.init(&recordLine, &countEvents) == ncclSuccess);
  Connection<TestType> connection(driver);
  connection.open();
  void* phandle = withParent ? &parent : nullptr;
  for (int i = 0; i < 3; i++) {
    void* receiving = connection.postReceive({5000}, {1}, {0}, phandle);
    connection.finish(connection.postSend(5000, 1, 0, phandle), receiving, nullptr);
  }
  CHECK(starts == (withParent ? 6 : 0));
  CHECK(stops == (withParent && wanted ? 6 : 0));
  connection.close();
  CHECK(driver.finalize() == ncclSuccess);
}

TEMPLATE_TEST_CASE("a profiler that declined is asked less often, and heard when it changes its mind", "",
                   ncclNet_v10_t, ncclNet_v12_t) {
  wanted = false;
  starts = stops = 0;
  Driver<TestType> driver;
  REQUIRE(driver.init(&recordLine, &countEvents) == ncclSuccess);
  Connection<TestType> connection(driver);
  connection.open();
  const auto exchange = [&](int messages) {
    for (int i = 0; i < messages; i++) {
      void* receiving = connection.postReceive({5000}, {1}, {0}, &parent);
      connection.finish(connection.postSend(5000, 1, 0, &parent), receiving, nullptr);
    }
  };
  exchange(32);
  CHECK(starts == 2 * 32);
  starts = 0;
  exchange(320);
  CHECK(starts <= 2 * 320 / 16 + 2);
  CHECK(starts >= 2 * 320 / 16 - 2);

  wanted = true;
  exchange(16);
  CHECK(starts > 0);
  starts = stops = 0;
  exchange(20);
  CHECK(starts == 2 * 20);
  CHECK(stops == 2 * 20);
  connection.close();
  CHECK(driver.finalize() == ncclSuccess);
}

TEMPLATE_TEST_CASE("one thread registers memory of a comm while another moves data on it", "", ncclNet_v8_t,
                   ncclNet_v12_t) {
  Driver<TestType> driver;
  REQUIRE(driver.init() == ncclSuccess);
  Connection<TestType> connection(driver, 100000);
  connection.open();
  std::vector<unsigned char> more(50000);
  int failures = 0;
  std::thread service([&] {  // Catch2's checks belong to one thread
    for (int i = 0; i < 200; i++) {
      for (void* comm : {connection.send, connection.receive}) {
        void* memory = nullptr;
        failures += driver.regMr(comm, more.data(), more.size(), &memory) != ncclSuccess || !memory;
        failures += driver.net->deregMr(comm, memory) != ncclSuccess;
      }
    }
  });
  for (int i = 0; i < 50; i++) {
    connection.source[99999] = static_cast<unsigned char>(i + 1);
    void* receiving = connection.postReceive({100000}, {1}, {0});
    connection.finish(connection.postSend(100000, 1), receiving, nullptr);
    CHECK(connection.sink[99999] == i + 1);
  }
  service.join();
  CHECK(failures == 0);
  connection.close();
  CHECK(driver.finalize() == ncclSuccess);
}
