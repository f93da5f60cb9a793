// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// What the process we live in notices of us: threads, descriptors, forks and unloading.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <iterator>
#include <malloc.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "tests/abi/connection.h"
#include "tests/abi/process_facts.h"

using namespace weft::abi;

namespace {

template <class Set>
Set added(const Set& before, const Set& after) {
  Set out;
  std::set_difference(after.begin(), after.end(), before.begin(), before.end(),
                      std::inserter(out, out.end()));
  return out;
}

bool endsWell(pid_t child) {
  int status = -1;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

TEMPLATE_TEST_CASE("our threads bear our name, take no signal and rest when there is nothing to do", "",
                   ncclNet_v8_t, ncclNet_v12_t) {
  const std::set<int> before = threads();
  Driver<TestType> driver;
  REQUIRE(driver.init() == ncclSuccess);
  Connection<TestType> connection(driver, 4096);
  connection.open();
  const std::set<int> ours = added(before, threads());
  REQUIRE(!ours.empty());
  for (const int thread : ours) {
    CHECK(threadName(thread).rfind("weft-", 0) == 0);
    const uint64_t blocked = blockedSignals(thread);
    for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGCHLD, SIGALRM, SIGPIPE, SIGPROF})
      CHECK(((blocked >> (number - 1)) & 1) == 1);
  }
  for (const int thread : ours) {
    const long ticks = processorTicks(thread);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    CHECK(processorTicks(thread) - ticks <= 2);  // of 50; one may be another's, falling into our tick
  }
  connection.close();
  CHECK(driver.finalize() == ncclSuccess);
}

TEMPLATE_TEST_CASE("no program started by the process inherits a descriptor of ours", "", ncclNet_v8_t,
                   ncclNet_v12_t) {
  const std::set<int> before = descriptors();
  Driver<TestType> driver;
  REQUIRE(driver.init() == ncclSuccess);
  Connection<TestType> connection(driver, 4096);
  connection.open();
  const std::set<int> ours = added(before, descriptors());
  CHECK(!ours.empty());
  for (const int fd : ours) CHECK((fcntl(fd, F_GETFD) & FD_CLOEXEC) == FD_CLOEXEC);
  connection.close();
  CHECK(driver.finalize() == ncclSuccess);
  CHECK(descriptors() == before);
}

TEMPLATE_TEST_CASE("nothing runs once everything is closed", "", ALL_TABLES) {
  Driver<TestType> driver;
  const std::set<int> before = threads();
  REQUIRE(driver.init() == ncclSuccess);
  passOneMessage(driver);
  CHECK(driver.finalize() == ncclSuccess);
  CHECK(settledAt(before));
}

TEMPLATE_TEST_CASE("a forked child is turned away and the parent goes on", "", ALL_TABLES) {
  Driver<TestType> driver;
  REQUIRE(driver.init() == ncclSuccess);
  Connection<TestType> connection(driver);
  connection.open();
  void* receiving = connection.postReceive({10}, {1}, {0});
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    int count = 0, done = 0;
    Handle handle{};
    void* out = nullptr;
    int touched = 0;
    touched += driver.net->devices(&count) != ncclSystemError;
    touched += driver.listen(0, &handle, &out) != ncclSystemError;
    touched += driver.isend(connection.send, connection.source.data(), 10, 1, connection.sourceMemory,
                            &out) != ncclSystemError;
    touched += driver.net->test(receiving, &done, nullptr) != ncclSystemError;
    touched += driver.net->closeSend(connection.send) != ncclSystemError;
    touched += driver.init() != ncclSystemError;
    _exit(touched);
  }
  CHECK(endsWell(child));
  int size = 0;
  connection.finish(connection.postSend(10, 1), receiving, &size);
  CHECK(size == 10);
  connection.close();
  CHECK(driver.finalize() == ncclSuccess);
  const pid_t later = fork();
  REQUIRE(later >= 0);
  if (later == 0) {
    driver.unload();  // with nothing open it runs our unload hook, which must keep its hands off as well
    _exit(mapped());
  }
  CHECK(endsWell(later));
}

TEMPLATE_TEST_CASE("a hundred loads and unloads leave nothing behind", "", ncclNet_v8_t, ncclNet_v12_t) {
  REQUIRE(!mapped());
  const std::set<int> threadsBefore = threads();
  const std::set<int> descriptorsBefore = descriptors();
  for (int i = 0; i < 100; i++) {
    Driver<TestType> driver;
    REQUIRE(driver.init() == ncclSuccess);
    passOneMessage(driver);
    REQUIRE(driver.finalize() == ncclSuccess);
    driver.unload();
    REQUIRE(!mapped());
    REQUIRE(settledAt(threadsBefore));
    REQUIRE(descriptors() == descriptorsBefore);
  }
}

// As NCCL does after an abort through a table without finalize, or a user who forgets the communicator.
TEMPLATE_TEST_CASE("the library stays in memory as long as something is open", "", ncclNet_v8_t,
                   ncclNet_v12_t) {
  REQUIRE(!mapped());
  const std::set<int> threadsBefore = threads();
  Driver<TestType> driver;
  REQUIRE(driver.init() == ncclSuccess);
  Handle handle{};
  void* listener = nullptr;
  REQUIRE(driver.listen(0, &handle, &listener) == ncclSuccess);
  driver.unload();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // twice as long as the control thread sleeps
  CHECK(threads() != threadsBefore);
  CHECK(mapped());
  driver.load();
  CHECK(driver.net->closeListen(listener) == ncclSuccess);
  CHECK(driver.finalize() == ncclSuccess);
  driver.unload();
  CHECK(!mapped());
  CHECK(settledAt(threadsBefore));
}

// NCCL loads the library with its first communicator and unloads it with its last one, again and again.
TEST_CASE("a library that is loaded and unloaded again and again leaves no memory behind") {
  const auto cycle = [] {
    Driver<ncclNet_v12_t> driver;
    REQUIRE(driver.init() == ncclSuccess);
    CHECK(driver.finalize() == ncclSuccess);
  };
  const auto inUse = [] {
    const auto heap = mallinfo2();
    return heap.uordblks + heap.hblkhd;
  };
  for (int i = 0; i < 5; i++) cycle();
  const size_t before = inUse();
  for (int i = 0; i < 200; i++) cycle();
  const size_t after = inUse();
  CHECK(after < before + (size_t{1} << 20));
}
