// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
// Collective offload as NCCL drives it, by each version's table: ranks that are threads of this process.
#include "nccl/collnet.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "tests/abi/connection.h"

using namespace weft::abi;

namespace {

template <class Table>
constexpr int kCollVersion = 0;
template <>
inline constexpr int kCollVersion<ncclCollNet_v6_t> = 6;
template <>
inline constexpr int kCollVersion<ncclCollNet_v7_t> = 7;
template <>
inline constexpr int kCollVersion<ncclCollNet_v8_t> = 8;
template <>
inline constexpr int kCollVersion<ncclCollNet_v9_t> = 9;
template <>
inline constexpr int kCollVersion<ncclCollNet_v10_t> = 10;
template <>
inline constexpr int kCollVersion<ncclCollNet_v11_t> = 11;
template <>
inline constexpr int kCollVersion<ncclCollNet_v12_t> = 12;

#define ALL_COLL_TABLES                                                                      \
  ncclCollNet_v6_t, ncclCollNet_v7_t, ncclCollNet_v8_t, ncclCollNet_v9_t, ncclCollNet_v10_t, \
      ncclCollNet_v11_t, ncclCollNet_v12_t

// The library with a table, and contexts of some ranks.
template <class Table>
class CollDriver {
 public:
  explicit CollDriver(const char* mode) {
    setenv("WEFT_PROVIDER", "loop", 1);
    setenv("WEFT_LOOP_RAILS", "1", 1);
    setenv("WEFT_COLLNET", mode, 1);
    setenv("WEFT_COLLNET_TIMEOUT", "3000", 1);
    forgetLines();
    library_ = openPlugin();
    REQUIRE(library_);
    const std::string symbol = "ncclCollNetPlugin_v" + std::to_string(kCollVersion<Table>);
    table = static_cast<const Table*>(dlsym(library_, symbol.c_str()));
    REQUIRE(table);
  }
  ~CollDriver() {
    unsetenv("WEFT_COLLNET");
    unsetenv("WEFT_COLLNET_TIMEOUT");
    dlclose(library_);
  }
  CollDriver(const CollDriver&) = delete;
  CollDriver& operator=(const CollDriver&) = delete;

  ncclResult_t init(void** context) {
    if constexpr (kCollVersion<Table> >= 11)
      return table->init(context, 5, &recordLine);
    else
      return table->init(&recordLine);
  }
  ncclResult_t listen(void* context, Handle* handle, void** listener) {
    if constexpr (kCollVersion<Table> >= 11)
      return table->listen(context, 0, handle->data(), listener);
    else
      return table->listen(0, handle->data(), listener);
  }
  void finalize(void* context) {
    if constexpr (kCollVersion<Table> >= 11) CHECK(table->finalize(context) == ncclSuccess);
  }

  const Table* table = nullptr;

 private:
  void* library_ = nullptr;
};

// What one rank has; made and used by its thread, so it notes what is wrong instead of checking.
template <class Table>
struct CollRank {
  void* context = nullptr;
  void* listener = nullptr;
  Handle handle{};
  void* group = nullptr;
  ncclResult_t connected = ncclInternalError;
  std::string wrong;
  std::vector<float> send, receive;
  void* sendMemory = nullptr;
  void* receiveMemory = nullptr;
};

template <class Table>
class CollGroup {
 public:
  CollGroup(CollDriver<Table>& driver, size_t ranks, size_t count) : driver_(driver), ranks_(ranks) {
    for (CollRank<Table>& rank : ranks_) {
      REQUIRE(driver.init(&rank.context) == ncclSuccess);
      REQUIRE(driver.listen(rank.context, &rank.handle, &rank.listener) == ncclSuccess);
      rank.send.resize(count);
      rank.receive.resize(count);
    }
  }

  template <class Work>
  void each(Work work) {
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < ranks_.size(); rank++)
      threads.emplace_back([&, rank] { work(static_cast<int>(rank), ranks_[rank]); });
    for (std::thread& thread : threads) thread.join();
  }

  void connect() {
    each([&](int number, CollRank<Table>& rank) {
      std::vector<void*> handles;
      for (CollRank<Table>& one : ranks_) handles.push_back(one.handle.data());
      rank.connected = driver_.table->connect(handles.data(), static_cast<int>(handles.size()), number,
                                              rank.listener, &rank.group);
    });
    for (CollRank<Table>& rank : ranks_) CHECK(driver_.table->closeListen(rank.listener) == ncclSuccess);
  }

  void registerAll() {
    for (CollRank<Table>& rank : ranks_) {
      const auto bytes = static_cast<int>(rank.send.size() * sizeof(float));
      REQUIRE(driver_.table->regMr(rank.group, rank.send.data(), bytes, NCCL_PTR_HOST, &rank.sendMemory) ==
              ncclSuccess);
      REQUIRE(driver_.table->regMr(rank.group, rank.receive.data(), bytes, NCCL_PTR_HOST,
                                   &rank.receiveMemory) == ncclSuccess);
    }
  }

  // Starts by `start` until there is a request, then tests it.
  template <class Start>
  void run(Start start) {
    each([&](int number, CollRank<Table>& rank) {
      void* request = nullptr;
      int done = 0, size = 0;
      const bool finished = until([&] {
        if (!request && start(number, rank, &request) != ncclSuccess) rank.wrong = "it does not start";
        if (request && driver_.table->test(request, &done, &size) != ncclSuccess)
          rank.wrong = "its test failed";
        return done == 1 || !rank.wrong.empty();
      });
      if (!finished) rank.wrong = "it does not end";
    });
    for (const CollRank<Table>& rank : ranks_) REQUIRE(rank.wrong == "");
  }

  void close() {
    for (CollRank<Table>& rank : ranks_) {
      if (rank.sendMemory) CHECK(driver_.table->deregMr(rank.group, rank.sendMemory) == ncclSuccess);
      if (rank.receiveMemory) CHECK(driver_.table->deregMr(rank.group, rank.receiveMemory) == ncclSuccess);
      CHECK(driver_.table->closeColl(rank.group) == ncclSuccess);
      driver_.finalize(rank.context);
    }
  }

  CollRank<Table>& operator[](size_t rank) { return ranks_[rank]; }

 private:
  CollDriver<Table>& driver_;
  std::vector<CollRank<Table>> ranks_;
};

}  // namespace

// What NCCL compares between ranks does not depend on one rank's setting; no rank gets a group.
TEMPLATE_TEST_CASE("where collective offload is off no group is formed, and devices are there", "",
                   ALL_COLL_TABLES) {
  CollDriver<TestType> driver("off");
  CollGroup<TestType> group(driver, 2, 16);
  int count = -1;
  CHECK(driver.table->devices(&count) == ncclSuccess);
  CHECK(count > 0);
  int supported = -1;
  CHECK(driver.table->reduceSupport(ncclFloat32, ncclSum, &supported) == ncclSuccess);
  CHECK(supported == 1);
  group.connect();
  for (int rank = 0; rank < 2; rank++) {
    CHECK(group[static_cast<size_t>(rank)].connected != ncclSuccess);
    CHECK(group[static_cast<size_t>(rank)].group == nullptr);
  }
  group.close();
}

TEMPLATE_TEST_CASE("what is reduced is said the same for every type, and unknown ones are no error", "",
                   ALL_COLL_TABLES) {
  CollDriver<TestType> driver("peers");
  void* context = nullptr;
  REQUIRE(driver.init(&context) == ncclSuccess);
  int count = -1;
  CHECK(driver.table->devices(&count) == ncclSuccess);
  CHECK(count == 1);
  for (int type = 0; type < 20; type++)
    for (const ncclRedOp_t op : {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg}) {
      int supported = -1;
      CHECK(driver.table->reduceSupport(static_cast<ncclDataType_t>(type), op, &supported) == ncclSuccess);
      CHECK(supported == (type <= ncclBfloat16 && op != ncclAvg ? 1 : 0));
    }
  CHECK(driver.table->reduceSupport(ncclFloat32, ncclSum, nullptr) == ncclInvalidArgument);
  driver.finalize(context);
}

TEMPLATE_TEST_CASE("ranks reduce a vector through the table, and close", "", ALL_COLL_TABLES) {
  CollDriver<TestType> driver("peers");
  CollGroup<TestType> group(driver, 3, 5000);
  group.connect();
  for (size_t rank = 0; rank < 3; rank++) {
    REQUIRE(group[rank].connected == ncclSuccess);
    REQUIRE(group[rank].group);
    for (size_t i = 0; i < 5000; i++) group[rank].send[i] = static_cast<float>(rank * 1000 + i);
  }
  group.registerAll();
  group.run([&](int, auto& rank, void** request) {
    return driver.table->iallreduce(rank.group, rank.send.data(), rank.receive.data(), 5000, ncclFloat32,
                                    ncclSum, rank.sendMemory, rank.receiveMemory, request);
  });
  for (size_t rank = 0; rank < 3; rank++)
    for (size_t i = 0; i < 5000; i++) REQUIRE(group[rank].receive[i] == static_cast<float>(3000 + 3 * i));
  void* flushing = nullptr;
  CHECK(driver.table->iflush(group[0].group, group[0].receive.data(), 8, group[0].receiveMemory, &flushing) ==
        ncclSuccess);
  REQUIRE(flushing);
  int done = 0;
  CHECK(driver.table->test(flushing, &done, nullptr) == ncclSuccess);
  CHECK(done == 1);
  group.close();
}

TEMPLATE_TEST_CASE("a window of an all-gather and of a reduce-scatter", "", ncclCollNet_v8_t,
                   ncclCollNet_v9_t, ncclCollNet_v10_t, ncclCollNet_v11_t, ncclCollNet_v12_t) {
  CollDriver<TestType> driver("peers");
  CollGroup<TestType> group(driver, 2, 300);
  group.connect();
  for (size_t rank = 0; rank < 2; rank++)
    for (size_t i = 0; i < 300; i++) group[rank].send[i] = static_cast<float>(rank * 1000 + i);
  group.registerAll();
  using Piece = std::conditional_t<kCollVersion<TestType> == 8, ncclNetSGE_v8_t, ncclNetSGE_v9_t>;
  constexpr size_t kEach = 100 * sizeof(float);
  // Of 100 elements a rank, the window has the last ten of rank 0 and the first twenty of rank 1.
  constexpr size_t kFirst = 90 * sizeof(float), kBytes = 30 * sizeof(float);
  group.run([&](int number, auto& rank, void** request) {
    Piece piece{rank.receiveMemory, rank.receive.data(), kBytes};
    float* own = rank.send.data() + (number == 0 ? 90 : 0);
    return driver.table->iallgather(rank.group, own, 1, &piece, kEach, kFirst, kBytes, rank.sendMemory,
                                    request);
  });
  for (size_t rank = 0; rank < 2; rank++) {
    for (size_t i = 0; i < 10; i++) REQUIRE(group[rank].receive[i] == static_cast<float>(90 + i));
    for (size_t i = 0; i < 20; i++) REQUIRE(group[rank].receive[10 + i] == static_cast<float>(1000 + i));
  }
  group.run([&](int, auto& rank, void** request) {
    Piece piece{rank.sendMemory, rank.send.data(), kBytes};
    return driver.table->ireducescatter(rank.group, 1, &piece, rank.receive.data(), kEach, kFirst, kBytes,
                                        ncclFloat32, ncclSum, rank.receiveMemory, request);
  });
  for (size_t i = 0; i < 10; i++) REQUIRE(group[0].receive[i] == static_cast<float>(1000 + 2 * i));
  for (size_t i = 0; i < 20; i++) REQUIRE(group[1].receive[i] == static_cast<float>(1000 + 2 * (10 + i)));
  group.close();
}

TEST_CASE("a group of which a rank does not come is formed nowhere, and says who is missing") {
  CollDriver<ncclCollNet_v12_t> driver("peers");
  CollGroup<ncclCollNet_v12_t> group(driver, 3, 1);
  group.each([&](int number, auto& rank) {
    if (number == 2) return;
    std::vector<void*> handles;
    for (size_t i = 0; i < 3; i++) handles.push_back(group[i].handle.data());
    rank.connected = driver.table->connect(handles.data(), 3, number, rank.listener, &rank.group);
  });
  for (const size_t rank : {0, 1}) {
    CHECK(group[rank].connected != ncclSuccess);
    CHECK(group[rank].group == nullptr);
  }
  CHECK(linesOf(NCCL_LOG_WARN).find("rank 2") != std::string::npos);
  for (size_t rank = 0; rank < 3; rank++)
    CHECK(driver.table->closeListen(group[rank].listener) == ncclSuccess);
  group.close();
}

TEST_CASE("wrong arguments of the offload calls are refused") {
  CollDriver<ncclCollNet_v12_t> driver("peers");
  const ncclCollNet_v12_t& table = *driver.table;
  void* context = nullptr;
  REQUIRE(driver.init(&context) == ncclSuccess);
  Handle handle{};
  void* listener = nullptr;
  void* group = nullptr;
  REQUIRE(driver.listen(context, &handle, &listener) == ncclSuccess);
  void* handles[] = {handle.data(), nullptr};
  CHECK(table.connect(nullptr, 1, 0, listener, &group) == ncclInvalidArgument);
  CHECK(table.connect(handles, 0, 0, listener, &group) == ncclInvalidArgument);
  CHECK(table.connect(handles, 1, 1, listener, &group) == ncclInvalidArgument);
  CHECK(table.connect(handles, 2, 0, listener, &group) == ncclInvalidArgument);
  CHECK(table.connect(handles, 1, 0, nullptr, &group) == ncclInvalidArgument);
  REQUIRE(table.connect(handles, 1, 0, listener, &group) == ncclSuccess);
  float number = 1;
  void* memory = nullptr;
  void* request = nullptr;
  CHECK(table.regMr(group, nullptr, 4, NCCL_PTR_HOST, &memory) == ncclInvalidArgument);
  CHECK(table.regMr(group, &number, 4, 7, &memory) == ncclInvalidArgument);
  CHECK(table.regMr(nullptr, &number, 4, NCCL_PTR_HOST, &memory) == ncclInvalidArgument);
  REQUIRE(table.regMr(group, &number, 4, NCCL_PTR_HOST, &memory) == ncclSuccess);
  CHECK(table.iallreduce(nullptr, &number, &number, 1, ncclFloat32, ncclSum, memory, memory, &request) ==
        ncclInvalidArgument);
  CHECK(table.iallreduce(group, &number, &number, 1, ncclFloat8e4m3, ncclSum, memory, memory, &request) ==
        ncclInvalidArgument);
  CHECK(table.iallreduce(group, &number, &number, 1, ncclFloat32, ncclSum, nullptr, memory, &request) ==
        ncclInvalidArgument);
  CHECK(table.iflush(group, &number, 4, nullptr, &request) == ncclInvalidArgument);
  CHECK(table.iflush(group, nullptr, 4, memory, &request) == ncclInvalidArgument);
  const auto refuses = [&](ncclNetSGE_v9_t part, void* ownMemory, size_t each, size_t first, size_t bytes) {
    CHECK(table.iallgather(group, &number, 1, &part, each, first, bytes, ownMemory, &request) ==
          ncclInvalidArgument);
    CHECK(table.ireducescatter(group, 1, &part, &number, each, first, bytes, ncclFloat32, ncclSum, ownMemory,
                               &request) == ncclInvalidArgument);
  };
  constexpr auto kNegative = static_cast<size_t>(-4);
  refuses({nullptr, &number, 4}, memory, 4, 0, 4);
  refuses({memory, nullptr, 4}, memory, 4, 0, 4);
  refuses({memory, &number, 4}, nullptr, 4, 0, 4);
  refuses({memory, &number, kNegative}, memory, 4, 0, 4);
  refuses({memory, &number, 4}, memory, kNegative, 0, 4);
  refuses({memory, &number, 4}, memory, 4, kNegative, 4);
  refuses({memory, &number, kNegative}, memory, 4, 0, kNegative);
  CHECK(table.test(nullptr, nullptr, nullptr) == ncclInvalidArgument);
  CHECK(table.deregMr(group, memory) == ncclSuccess);
  CHECK(table.deregMr(group, memory) == ncclInvalidArgument);
  CHECK(table.closeColl(group) == ncclSuccess);
  CHECK(table.closeColl(nullptr) == ncclSuccess);
  CHECK(table.closeListen(listener) == ncclSuccess);
  driver.finalize(context);
}
