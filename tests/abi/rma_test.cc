// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
// One-sided operations as NCCL drives them, by each version's table: ranks that are threads of this process.
#include <atomic>
#include <chrono>
#include <cstring>

#include "tests/abi/rma_driver.h"

using namespace weft::abi;

namespace {

// One rank's life, call by call as NCCL 2.30.7 makes them.
template <class Table>
struct RmaRank {
  const RmaDriver<Table>* driver = nullptr;
  uint32_t rank = 0, ranks = 0;
  std::string fault;  // the first call that failed
  void* context = nullptr;
  void* ginContext = nullptr;
  void* listener = nullptr;
  Handle handle{};
  void* comm = nullptr;
  void* rmaContext = nullptr;
  std::vector<uint64_t> signals, flushes;
  std::vector<std::byte> window;
  void *signalsMhandle = nullptr, *flushMhandle = nullptr, *windowMhandle = nullptr;

  bool fine(const char* call, ncclResult_t result) {
    if (result != ncclSuccess && fault.empty()) fault = call;
    return result == ncclSuccess;
  }

  bool begin() {
    const Table& table = *driver->table;
    int devices = 0;
    ncclNetProperties_v12_t properties;
    std::memset(&properties, 0xAA, sizeof properties);
    // First for the host's calls, then for the proxy of device-initiated puts.
    const bool begun = fine("init", table.init(&context, 5, &recordLine)) &&
                       fine("devices", table.devices(&devices)) &&
                       fine("getProperties", table.getProperties(0, &properties)) &&
                       fine("init", table.init(&ginContext, 5, &recordLine)) &&
                       fine("listen", table.listen(context, 0, handle.data(), &listener));
    if (devices != 1 || properties.netDeviceType != NCCL_NET_DEVICE_GIN_PROXY || properties.maxRecvs != 8)
      fault = "properties";
    return begun;
  }

  // NCCL passes the context of the network's table.
  void connect(std::vector<void*> handles) {
    const Table& table = *driver->table;
    int foreign = 0;
    signals.resize(ranks + 1);
    flushes.resize(ranks);
    window.resize(size_t{1} << 20);
    (void)(fine("connect", table.connect(&foreign, handles.data(), static_cast<int>(ranks),
                                         static_cast<int>(rank), listener, &comm)) &&
           fine("closeListen", table.closeListen(listener)) &&
           fine("createContext", driver->createContext(comm, 1, &rmaContext)) &&
           fine("regMrSym", driver->regMrSym(comm, signals.data(), signals.size() * 8,
                                             NCCL_NET_MR_FLAG_FORCE_SO | NCCL_NET_MR_FLAG_SIGNAL_NEVER_RESET,
                                             &signalsMhandle)) &&
           fine("regMrSym", driver->regMrSym(comm, flushes.data(), flushes.size() * 8,
                                             NCCL_NET_MR_FLAG_FORCE_SO, &flushMhandle)) &&
           fine("regMrSym", driver->regMrSym(comm, window.data(), window.size(), 0, &windowMhandle)));
  }

  // NCCL's proxy goes on until the communicator ends: the other ranks may still need this one.
  void serve(const std::atomic<uint32_t>& busy) {
    while (busy.load() > 0 && fine("progress", driver->progress(rmaContext))) std::this_thread::yield();
  }

  // A put with a signal to the next rank, a wait for the one from the rank before, the flush of NCCL's graph
  // mode, in which only test is called, and a get.
  void exchange(uint64_t rounds) {
    const uint32_t next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    const size_t bytes = 100'000;
    for (uint64_t round = 1; round <= rounds && fault.empty(); round++) {
      std::memset(window.data(), static_cast<int>(round * 16 + rank), bytes);
      PutCall call{0, windowMhandle, bytes, bytes * 2 + bytes * (round % 4), windowMhandle, next};
      call.signalMhandle = signalsMhandle;
      call.signalOffset = rank * 8;
      void* request = nullptr;
      if (!fine("iputSignal", driver->put(rmaContext, call, &request)) || !request) return;
      std::atomic_ref<uint64_t> seen(signals[before]);
      wait([&] { return seen.load(std::memory_order_acquire) >= round; });
      const std::byte* here = window.data() + call.targetOffset;
      const auto expected = static_cast<std::byte>(round * 16 + before);
      if (here[0] != expected || here[bytes - 1] != expected) fault = "the put's bytes";
      finish(request);
      flush();
    }
    PutCall get{size_t{900'000}, windowMhandle, 1000, 0, windowMhandle, before};
    void* request = nullptr;
    if (fine("iget", driver->get(rmaContext, get, &request))) finish(request);
    if (fault.empty() && window[900'000] != static_cast<std::byte>(rounds * 16 + before))
      fault = "the get's bytes";
  }

  void wait(const std::function<bool()>& reached) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!reached() && fine("progress", driver->progress(rmaContext))) {
      if (std::chrono::steady_clock::now() < limit) continue;
      fault = "a wait";
      return;
    }
  }
  void finish(void* request) {
    int done = 0;
    wait([&] { return !fine("test", driver->table->test(comm, request, &done)) || done; });
  }
  void flush() {
    PutCall call{rank * 8, flushMhandle, 8, rank * 8, flushMhandle, rank};
    void* request = nullptr;
    int done = 0;
    if (fine("iput", driver->put(rmaContext, call, &request)))
      fine("test", driver->table->test(comm, request, &done));
    if (!done) fault = "the flush";
  }

  // Not together with the other ranks. The context goes before what was registered.
  void end() {
    const Table& table = *driver->table;
    bool failed = true;
    fine("queryLastError", table.queryLastError(rmaContext, &failed));
    if (failed) fault = "the last error";
    fine("deregMrSym", table.deregMrSym(comm, windowMhandle));
    fine("destroyContext", table.destroyContext(rmaContext));
    fine("deregMrSym", table.deregMrSym(comm, signalsMhandle));
    fine("deregMrSym", table.deregMrSym(comm, flushMhandle));
    fine("closeColl", table.closeColl(comm));
    fine("finalize", table.finalize(ginContext));
    fine("finalize", table.finalize(context));
  }
};

}  // namespace

TEST_CASE("one-sided: the library exports the tables v13 to v16 and nothing next to them") {
  void* library = openPlugin();
  REQUIRE(library);
  for (int version = 0; version < 25; version++) {
    const std::string name = "ncclRmaPlugin_v" + std::to_string(version);
    CHECK((dlsym(library, name.c_str()) != nullptr) == (version >= 13 && version <= 16));
  }
  dlclose(library);
}

TEMPLATE_TEST_CASE("one-sided: the calls in NCCL's order, for 1, 2 and 4 ranks", "", ALL_RMA_TABLES) {
  for (const uint32_t count : {1u, 2u, 4u}) {
    INFO(count << " ranks");
    RmaDriver<TestType> driver;
    CHECK(driver.table->finalize(nullptr) == ncclSuccess);
    std::vector<RmaRank<TestType>> ranks(count);
    for (uint32_t rank = 0; rank < count; rank++) {
      ranks[rank].driver = &driver;
      ranks[rank].rank = rank;
      ranks[rank].ranks = count;
      REQUIRE(ranks[rank].begin());
    }
    std::vector<void*> handles;
    for (auto& one : ranks) handles.push_back(one.handle.data());
    const auto each = [&](const std::function<void(RmaRank<TestType>&)>& work) {
      std::vector<std::thread> threads;
      for (auto& one : ranks) threads.emplace_back([&] { work(one); });
      for (std::thread& thread : threads) thread.join();
      for (auto& one : ranks) REQUIRE(one.fault == "");
    };
    each([&](RmaRank<TestType>& one) { one.connect(handles); });
    std::atomic<uint32_t> busy{count};
    each([&](RmaRank<TestType>& one) {
      one.exchange(20);
      busy--;
      one.serve(busy);
    });
    each([&](RmaRank<TestType>& one) { one.end(); });
    CHECK(linesOf(NCCL_LOG_WARN) == "");
  }
}

TEST_CASE("one-sided: what cannot be is refused in words, and breaks nothing") {
  using Table = ncclRma_v16_t;
  RmaDriver<Table> driver;
  RmaRank<Table> one;
  one.driver = &driver;
  one.ranks = 1;
  REQUIRE(one.begin());
  one.connect({one.handle.data()});
  REQUIRE(one.fault == "");
  const Table& table = *driver.table;
  void* request = &one;
  PutCall outside{0, one.windowMhandle, 16, one.window.size() - 8, one.windowMhandle, 0};
  CHECK(driver.put(one.rmaContext, outside, &request) == ncclInvalidArgument);
  CHECK(request == nullptr);
  CHECK(linesOf(NCCL_LOG_WARN).find("the target is outside: 16 bytes from 1048568 on, in window 2") !=
        std::string::npos);
  PutCall nowhere{0, nullptr, 16, 0, one.windowMhandle, 0};
  CHECK(driver.put(one.rmaContext, nowhere, &request) == ncclInvalidArgument);
  PutCall wrongRank{0, one.windowMhandle, 16, 0, one.windowMhandle, 1};
  CHECK(driver.put(one.rmaContext, wrongRank, &request) == ncclInvalidArgument);
  PutCall wrongContext{0, one.windowMhandle, 16, 0, one.windowMhandle, 0, 1};
  CHECK(driver.put(one.rmaContext, wrongContext, &request) == ncclInvalidArgument);
  PutCall signal{0, nullptr, 0, 0, nullptr, 0, 0, 3, one.windowMhandle};
  CHECK(driver.put(one.rmaContext, signal, &request) == ncclInvalidArgument);
  signal.signalOffset = 8;
  signal.signalOp = 3;
  CHECK(driver.put(one.rmaContext, signal, &request) == ncclInvalidArgument);
  CHECK(driver.put(nullptr, signal, &request) == ncclInvalidArgument);
  CHECK(driver.put(one.comm, signal, &request) == ncclInvalidArgument);
  CHECK(driver.put(one.context, signal, &request) == ncclInvalidArgument);
  int done = 1;
  CHECK(table.test(one.comm, nullptr, &done) == ncclInvalidArgument);
  CHECK(done == 0);
  CHECK(table.test(one.rmaContext, nullptr, &done) == ncclInvalidArgument);
  void* mhandle = &one;
  CHECK(table.regMrSym(one.comm, nullptr, 8, NCCL_PTR_HOST, 0, &mhandle) == ncclInvalidArgument);
  CHECK(mhandle == nullptr);
  CHECK(table.regMrSym(one.comm, &one, 0, NCCL_PTR_HOST, 0, &mhandle) == ncclInvalidArgument);
  CHECK(table.deregMrSym(one.comm, one.comm) == ncclInvalidArgument);
  CHECK(table.deregMrSym(one.comm, nullptr) == ncclSuccess);
  one.end();
  CHECK(one.fault == "");
  CHECK(table.closeColl(nullptr) == ncclSuccess);
  CHECK(table.closeColl(one.comm) == ncclInvalidArgument);
}

// NCCL does not close a context where there is no device, so such a context must keep nothing.
TEST_CASE("one-sided: a machine without a device gives a context that may be forgotten") {
  RmaDriver<ncclRma_v16_t> driver("nosuch");
  void* context = nullptr;
  CHECK(driver.table->init(&context, 5, &recordLine) == ncclSuccess);
  CHECK(context != nullptr);
  int devices = -1;
  CHECK(driver.table->devices(&devices) == ncclSuccess);
  CHECK(devices == 0);
  CHECK(driver.table->init(&context, 5, &recordLine) == ncclSuccess);
  CHECK(driver.table->finalize(context) == ncclSuccess);
  CHECK(driver.table->finalize(context) == ncclSuccess);
}
