// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <malloc.h>
#include <map>
#include <string>
#include <thread>
#include <unistd.h>

#include "providers/verbs/library.h"
#include "providers/verbs/transport.h"
#include "tests/support/catch.h"
#include "tests/support/patience.h"
#include "tests/support/seam_end.h"

// What only verbs has: ports that go down, settings that name what is not there, and what a lane costs. For
// the guest of scripts/rdma-vm, whose first cable is pulled here and put back.
using namespace weft;
using namespace weft::test;

namespace {

using enum CompletionKind;

// Of the first cable's device where the settings name none: it alone goes away here.
std::unique_ptr<Transport> make(Config config = {}) {
  if (config.hca.empty()) config.hca = "rxe0";
  auto transport = verbs::makeTransport(config);
  if (!transport) FAIL(transport.error().message());
  return transport.take();
}

// All refusals in one text.
std::string refusalsOf(const Config& config) {
  const auto transport = make(config);
  const auto found = transport->discover();
  REQUIRE(found);
  CHECK(found->empty());
  std::string text;
  for (const Refusal& refusal : transport->refusals()) text += refusal.what + ": " + refusal.why + "\n";
  return text;
}

bool contains(const std::string& text, const char* what) {
  return text.find(what) != std::string::npos;
}

void run(const char* command) {
  REQUIRE(std::system(command) == 0);
}

void awaitPort() {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10) * patience();
  while (std::chrono::steady_clock::now() < end && make()->discover()->empty())
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
}

// Pulls the far end of the first cable; its near end loses the carrier. Puts it back at the end, and waits
// until the port is active again.
struct PulledCable {
  PulledCable() { run("ip netns exec far ip link set far0 down"); }
  ~PulledCable() {
    (void)!std::system("ip netns exec far ip link set far0 up");
    awaitPort();
  }
};

// What libibverbs is asked to write, by queue pair.
std::map<uint32_t, uint64_t> bytesOfPair;
int (*realPost)(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad);
ibv_context* (*realOpen)(ibv_device* card);

int countedPost(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad) {
  for (const ibv_send_wr* one = first; one; one = one->next)
    bytesOfPair[qp->qp_num] += one->num_sge ? one->sg_list->length : 0;
  return realPost(qp, first, bad);
}

std::unique_ptr<Transport> makeCounted(const Config& config) {
  const auto opened = verbs::Library::open("");
  REQUIRE(opened);
  auto library = std::make_shared<verbs::Library>(**opened);
  realOpen = library->openDevice;
  library->openDevice = [](ibv_device* card) {
    ibv_context* context = realOpen(card);
    if (!context) return context;
    realPost = context->ops.post_send;
    context->ops.post_send = countedPost;
    return context;
  };
  return verbs::makeTransport(std::move(library), config);
}

size_t mappedKiB() {
  const int fd = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  std::string text(128, '\0');
  text.resize(static_cast<size_t>(std::max<ssize_t>(::read(fd, text.data(), text.size()), 0)));
  ::close(fd);
  return static_cast<size_t>(std::strtoul(text.c_str(), nullptr, 10)) * 4;  // all that is mapped
}

}  // namespace

TEST_CASE("discovery shows this network namespace's devices with an address of IPv4") {
  const auto transport = make();
  const auto infos = transport->discover();
  REQUIRE(infos);
  REQUIRE_FALSE(infos->empty());
  for (const DeviceInfo& info : *infos) {
    CHECK(info.name.starts_with("rxe"));
    CHECK(info.address.starts_with("10.99."));
    CHECK(info.provider == "verbs");
    CHECK(info.mtu == 4096);
    CHECK(info.delivery == Delivery::always);
  }
}

TEST_CASE("settings that fit nothing leave nothing, with the next step") {
  Config config;
  config.hca = "=mlx5_7";
  CHECK(contains(refusalsOf(config), "WEFT_HCA"));
  config = {};
  config.hca = "rxe:2";
  CHECK(contains(refusalsOf(config), "WEFT_HCA"));
  config = {};
  config.ibGidIndex = 200;
  const std::string text = refusalsOf(config);
  CHECK(contains(text, "WEFT_IB_GID_INDEX (or NCCL_IB_GID_INDEX) is 200"));
  CHECK(contains(text, "10.99.0.1"));
  config = {};
  config.ibPkeyIndex = 5000;
  CHECK(contains(refusalsOf(config), "WEFT_IB_PKEY is 5000"));
}

TEST_CASE("a named GID index is used, and both address families work") {
  Config config;
  config.ibGidIndex = GENERATE(0, 1, 2);
  const auto transport = make(config);
  const auto infos = transport->discover();
  REQUIRE(infos);
  REQUIRE_FALSE(infos->empty());
  CHECK(infos->front().address.starts_with("10.99.") == (config.ibGidIndex == 1));
  SeamEnd a(*transport, 4096), b(*transport, 4096);
  joinEnds(a, b);
  REQUIRE(a.post(a.work(Opcode::writeNotify, 0, 0, 100)));
  CHECK(pumpUntil({&a, &b}, [&] { return b.count(notified) == 1; }));
}

TEST_CASE("a port that goes down is told of and refused until it is up, and its lanes then go on") {
  const auto transport = make();
  SeamEnd a(*transport, 4096), b(*transport, 4096);
  joinEnds(a, b);
  {
    const PulledCable pulled;
    REQUIRE(pumpUntil({&a, &b},
                      [&] { return a.count(faltering, false) == 1 && b.count(faltering, false) == 1; }));
    CHECK(contains(a.words.front(), "port 1 of rxe0 went down"));
    CHECK(a.first(faltering)->error == ENETDOWN);
    Config onlyThis;
    onlyThis.hca = "=rxe0";
    CHECK(contains(refusalsOf(onlyThis), "the port is down"));
  }
  REQUIRE(pumpUntil({&a, &b}, [&] { return a.count(faltering, true) == 1; }));
  REQUIRE(a.post(a.work(Opcode::writeNotify, 0, 0, 100)));
  CHECK(pumpUntil({&a, &b}, [&] { return a.count(sent, true) == 1 && b.count(notified) == 1; }));
  CHECK(a.count(broken) == 0);
}

TEST_CASE("an interface that goes away fails what is in flight") {
  const auto transport = make();
  SeamEnd a(*transport, 1 << 20), b(*transport, 1 << 20);
  joinEnds(a, b);
  for (uint64_t i = 0; i < 8; i++) REQUIRE(a.post(a.work(Opcode::write, 0, 0, 1 << 20, i)));
  run("ip link set rail0 down");
  const bool over = pumpUntil({&a, &b}, [&] { return a.count(sent) == 8; });
  run("ip link set rail0 up && ip addr replace fd99:0::1/64 dev rail0 nodad");
  awaitPort();
  CHECK(over);
  REQUIRE_FALSE(a.words.empty());
  CHECK(contains(a.words.front(), "rxe0:1"));
}

TEST_CASE("the lanes of an address that is taken away falter, and the next ones use what is left") {
  const auto transport = make();
  SeamEnd a(*transport, 4096), b(*transport, 4096);
  joinEnds(a, b);
  run("ip addr del 10.99.0.1/24 dev rail0");
  const bool over =
      pumpUntil({&a, &b}, [&] { return a.count(faltering, false) == 1 && b.count(faltering, false) == 1; });
  SeamEnd c(*transport, 4096), d(*transport, 4096);
  joinEnds(c, d);
  CHECK(c.post(c.work(Opcode::writeNotify, 0, 0, 100)));
  const bool works = pumpUntil({&c, &d}, [&] { return d.count(notified) == 1; });
  run("ip addr add 10.99.0.1/24 dev rail0");
  REQUIRE(over);
  CHECK(contains(a.words.front(), "port 1 of rxe0: its address 10.99.0.1"));
  CHECK(a.first(faltering)->error == EADDRNOTAVAIL);
  CHECK(works);
}

TEST_CASE("a peer that is gone is told by the card's retries") {
  Config config;
  config.ibTimeout = 14;    // 67 ms
  config.ibRetryCount = 7;  // which SoftRoCE would take for ever
  const auto transport = make(config);
  SeamEnd a(*transport, 4096);
  auto b = std::make_unique<SeamEnd>(*transport, 4096);
  joinEnds(a, *b);
  b->lane.reset();
  REQUIRE(a.post(a.work(Opcode::write, 0, 0, 100)));
  REQUIRE(pumpUntil({&a}, [&] { return a.count(sent, false) == 1; }));
  CHECK(a.first(sent)->error == ETIMEDOUT);
  CHECK(contains(a.words.front(), "did not acknowledge within all retries"));
  CHECK(contains(a.words.front(), "10.99."));
  a.lane->retire();
  CHECK(pumpUntil({&a}, [&] { return a.count(retired) == 1; }));
}

TEST_CASE("a lane that does not answer is retired by its deadline") {
  Config config;
  config.ibTimeout = 22;  // 17 s
  config.closeTimeout = Milliseconds(200);
  const auto transport = make(config);
  SeamEnd a(*transport, 4096), b(*transport, 4096);
  joinEnds(a, b);
  b.lane.reset();
  REQUIRE(a.post(a.work(Opcode::write, 0, 0, 100, 7)));
  a.lane->retire();
  REQUIRE(pumpUntil({&a}, [&] { return a.count(retired) == 1; }));
  REQUIRE(a.count(sent, false) == 1);
  CHECK(a.first(sent)->context == 7);
  CHECK(a.seen.back().kind == retired);
}

TEST_CASE(
    "a lane costs at most 64 KiB, whatever its Queue was opened with, and 32 KiB a further queue pair") {
  const auto cost = [](int pairs) {
    Config config;
    config.qpsPerConnection = pairs;
    const auto transport = make(config);
    const SeamEnd end(*transport, 4096, {.sends = 4096, .notifications = 8192});
    constexpr size_t kLanes = 64;
    std::vector<std::unique_ptr<Endpoint>> lanes;
    const size_t before = mappedKiB();
    for (size_t i = 0; i < kLanes; i++) {
      auto lane = end.queue->openEndpoint();
      REQUIRE(lane);
      lanes.push_back(lane.take());
    }
    return (mappedKiB() - before) / kLanes;
  };
  const size_t one = cost(1), four = cost(4);
  CAPTURE(one, four);
  CHECK(one <= 64);
  CHECK(four <= one + 3 * 32);
}

TEST_CASE("four queue pairs of a lane all carry data, and none of it wrong") {
  constexpr size_t kWrites = 32, kBytes = 16384;
  Config config;
  config.hca = "rxe0";
  config.qpsPerConnection = 4;
  const auto transport = makeCounted(config);
  SeamEnd a(*transport, kWrites * kBytes), b(*transport, kWrites * kBytes);
  a.fill(20261122);
  joinEnds(a, b);
  bytesOfPair.clear();
  for (size_t i = 0; i < kWrites; i++)
    REQUIRE(a.post(a.work(Opcode::writeNotify, i * kBytes, i * kBytes, kBytes, i)));
  REQUIRE(
      pumpUntil({&a, &b}, [&] { return b.count(notified) == kWrites && a.count(sent, true) == kWrites; }));
  CHECK(b.holds(0, a, 0, kWrites * kBytes));
  REQUIRE(bytesOfPair.size() == 4);
  for (const auto& [pair, bytes] : bytesOfPair) CHECK(bytes == kWrites * kBytes / 4);
  a.lane->retire();
  CHECK(pumpUntil({&a}, [&] { return a.count(retired, true) == 1; }));
}

TEST_CASE("a hundred lanes come and go on a Queue that stays") {
  const auto transport = make();
  SeamEnd a(*transport, 4096), b(*transport, 4096);
  const auto round = [&](int i) {
    a.lane.reset();
    b.lane.reset();
    a.lane = a.queue->openEndpoint().take();
    b.lane = b.queue->openEndpoint().take();
    a.seen.clear();
    b.seen.clear();
    joinEnds(a, b);
    REQUIRE(a.post(a.work(Opcode::writeNotify, 0, 0, 100)));
    if (i % 2) return;  // closed with works in flight
    REQUIRE(pumpUntil({&a, &b}, [&] { return b.count(notified) == 1 && a.count(sent, true) == 1; }));
  };
  for (int i = 0; i < 20; i++) round(i);
  const size_t heap = ::mallinfo2().uordblks;
  for (int i = 0; i < 100; i++) round(i);
  CHECK(::mallinfo2().uordblks < heap + 65536);
}
