// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <chrono>
#include <dirent.h>
#include <malloc.h>
#include <thread>

#include "tests/support/catch.h"
#include "tests/support/sanitizer.h"
#include "tests/system/ofi/lanes.h"

// Opening, using and closing must leave nothing behind: no descriptor, no thread, no growing heap. libfabric
// 1.17 itself loses two fi_info a connection (about 1.7 KB; valgrind shows none of ours), so heaps may grow
// by that.
using namespace weft;
using namespace weft::test;

namespace {

size_t entriesOf(const char* directory) {
  size_t count = 0;
  DIR* opened = ::opendir(directory);
  if (!opened) return 0;
  while (::readdir(opened)) count++;
  ::closedir(opened);
  return count;
}

// A thread that was joined is listed for a moment more.
bool threadsFallTo(size_t most) {
  for (int i = 0; i < 1000 && entriesOf("/proc/self/task") > most; i++)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return entriesOf("/proc/self/task") <= most;
}

constexpr size_t kLostByLibfabric = 4096;  // a round, for each stream

// How many connections a lane is: the test case is run for one and for several.
int pickStreams(const std::string& provider) {
  return provider == "net" || provider == "tcp" ? GENERATE(1, 4) : 1;
}

// ofi_rxm maps memory for a tenth of a second when an endpoint opens, under a sanitizer for a whole one.
size_t roundsOf(const std::string& provider) {
  if (provider != "tcp;ofi_rxm") return 100;
  return kSanitized ? 5 : 20;
}

size_t heapBytes() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

// Both ends in one process; half of the time the lanes are destroyed with works in flight.
void useOnce(const std::shared_ptr<Device>& device, bool orderly) {
  OfiSide a(device, 65536), b(device, 65536);
  REQUIRE(connectBoth(a, b));
  for (int i = 0; i < 8; i++) {
    Work work = a.work(i % 2 ? Opcode::read : Opcode::writeNotify, 0, 4096, 1);
    work.delivered = true;
    REQUIRE(pollUntil({&a, &b}, [&] { return a.post(work); }));
  }
  if (!orderly) return;
  REQUIRE(pollUntil({&a, &b}, [&] { return a.count(CompletionKind::sent) == 8; }));
  a.lane->retire();
  REQUIRE(pollUntil({&a, &b}, [&] { return a.count(CompletionKind::retired) == 1; }));
}

}  // namespace

TEST_CASE("a hundred openings and closings leave nothing behind") {
  static const std::vector<std::string> found = oneProcessProviders();
  const std::string provider = pick(found);
  if (provider.empty()) return;
  Config config = ofiConfig();
  config.tcpStreams = pickStreams(provider);
  CAPTURE(provider, config.tcpStreams);
  const size_t rounds = roundsOf(provider);
  auto transport = OfiSide::REQUIRED(ofi::makeTransport(provider, config));
  const auto infos = OfiSide::REQUIRED(transport->discover());
  const auto round = [&](size_t i) {
    const auto device = OfiSide::REQUIRED(transport->open(infos.front()));
    useOnce(device, i % 2 == 0);
  };
  for (size_t i = 0; i < rounds / 2; i++) round(i);
  const size_t descriptors = entriesOf("/proc/self/fd");
  const size_t threads = entriesOf("/proc/self/task");
  const size_t heap = heapBytes();
  for (size_t i = 0; i < rounds; i++) round(i);
  CHECK(entriesOf("/proc/self/fd") == descriptors);
  CHECK(threadsFallTo(threads));
  CHECK(heapBytes() < heap + rounds * kLostByLibfabric * static_cast<size_t>(config.tcpStreams));
}

TEST_CASE("lanes come and go on a Queue that stays") {
  static const std::vector<std::string> found = oneProcessProviders();
  const std::string provider = pick(found);
  if (provider.empty()) return;
  Config config = ofiConfig();
  config.tcpStreams = pickStreams(provider);
  CAPTURE(provider, config.tcpStreams);
  const size_t rounds = roundsOf(provider);
  OfiSide a(provider, 1 << 20, config);
  OfiSide b(a.device, 65536);
  const auto round = [&](size_t i) {
    // shm 1.17 keeps a plain pointer to a peer of the same process: both go before anything new is opened.
    a.lane.reset();
    b.lane.reset();
    a.lane = OfiSide::REQUIRED(a.queue->openEndpoint());
    b.lane = OfiSide::REQUIRED(b.queue->openEndpoint());
    a.seen.clear();
    b.seen.clear();
    REQUIRE(connectBoth(a, b));
    Work work = a.work(Opcode::writeNotify, 0, 4096, 1);
    REQUIRE(pollUntil({&a, &b}, [&] { return a.post(work); }));
    if (i % 2) return;
    REQUIRE(pollUntil({&a, &b}, [&] { return b.count(CompletionKind::notified) == 1; }));
    a.lane->retire();
    REQUIRE(pollUntil({&a, &b}, [&] { return a.count(CompletionKind::retired) == 1; }));
  };
  for (size_t i = 0; i < rounds / 2; i++) round(i);
  const size_t descriptors = entriesOf("/proc/self/fd");
  const size_t heap = heapBytes();
  for (size_t i = 0; i < rounds; i++) round(i);
  CHECK(entriesOf("/proc/self/fd") <= descriptors);
  CHECK(heapBytes() < heap + rounds * kLostByLibfabric * static_cast<size_t>(config.tcpStreams));
}
