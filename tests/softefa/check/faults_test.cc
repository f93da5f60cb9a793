// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// Every fault, switched on and seen.
#include "tests/softefa/faults.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "tests/softefa/check/node.h"
#include "tests/softefa/softefa.h"
#include "tests/support/catch.h"

using namespace softefa::check;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

// Two nodes that know each other, with memory of `size` on both.
struct Pair {
  Pair(const Options& forA, const Options& forB, size_t size)
      : a("a", forA), b("b", forB), to(a.meet(b)), here(a.memory(size)), there(b.memory(size)) {
    b.meet(a);
  }
  Pair(const Options& forBoth, size_t size) : Pair(forBoth, forBoth, size) {}

  Node a, b;
  Target to;
  std::unique_ptr<Memory> here, there;
};

Options with(const std::string& faults) {
  Options options;
  options.faults = faults;
  options.unsolicited = true;
  return options;
}

// One memory at two addresses: what the device writes at one is looked at through the other, so that no tool
// takes the look for a race.
struct SeenTwice {
  static constexpr size_t kBytes = 12288;

  SeenTwice() : file(::memfd_create("softefa-test", MFD_CLOEXEC)) {
    REQUIRE(::ftruncate(file, kBytes) == 0);
    forDevice = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    forTest = static_cast<volatile unsigned char*>(
        ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  }
  ~SeenTwice() {
    ::munmap(forDevice, kBytes);
    ::munmap(const_cast<unsigned char*>(forTest), kBytes);
    ::close(file);
  }
  SeenTwice(const SeenTwice&) = delete;
  SeenTwice& operator=(const SeenTwice&) = delete;

  int file;
  void* forDevice;
  volatile unsigned char* forTest;
};

// Writes `count` pieces of `size` bytes with their number as notification; the order in which they were
// notified.
std::vector<uint32_t> writeMany(Pair& pair, unsigned count, size_t size) {
  for (size_t i = 0; i < pair.here->bytes.size(); ++i)
    pair.here->bytes[i] = static_cast<unsigned char>(i * 7 + i / 251);
  std::vector<uint32_t> order;
  for (uint32_t i = 0; i < count; ++i) {
    REQUIRE(pair.a.write(i, pair.to, pair.here->piece(i * size, size), *pair.there, i * size, i) == 0);
  }
  for (unsigned i = 0; i < count; ++i) order.push_back(pair.b.take().imm);
  for (unsigned i = 0; i < count; ++i) CHECK(pair.a.take().vendor == 0);
  CHECK((pair.here->bytes == pair.there->bytes));
  return order;
}

}  // namespace

TEST_CASE("without faults writes are notified in order") {
  Pair pair(with(""), 40 * 3000);
  const auto order = writeMany(pair, 40, 3000);
  CHECK(std::is_sorted(order.begin(), order.end()));
  CHECK(pair.b.counter("packetsHeld") == 0);
}

TEST_CASE("reorder: notifications overtake each other, and every byte is right") {
  Pair pair(with("reorder=50 reorder_time=20ms"), 60 * 20000);
  const auto order = writeMany(pair, 60, 20000);
  CHECK_FALSE(std::is_sorted(order.begin(), order.end()));
  CHECK(pair.b.counter("packetsHeld") > 20);
  CHECK(pair.a.counter("outOfOrder") > 0);
}

TEST_CASE("delay: nothing arrives before its time") {
  Pair pair(with("delay=40ms"), 100);
  const auto begin = Clock::now();
  writeMany(pair, 1, 100);
  CHECK(Clock::now() - begin >= 80ms);  // there, and the answer back
}

TEST_CASE("loss: what is lost on a reliable queue pair comes later") {
  Pair pair(with("loss=20 retransmit=3ms"), 60 * 20000);
  writeMany(pair, 60, 20000);
  CHECK(pair.b.counter("packetsLost") > 10);
}

TEST_CASE("loss: a lost datagram is gone") {
  Options options = with("loss=50");
  options.unsolicited = false;
  options.datagrams = true;
  options.receiveDepth = 128;
  options.sendDepth = 128;
  Node a("a", options), b("b", options);
  const Target to = a.meet(b);
  const auto out = a.memory(8), in = b.memory(64);
  for (uint64_t i = 0; i < 100; ++i) REQUIRE(b.receive(i, in->piece(0, 64)) == 0);
  for (uint64_t i = 0; i < 100; ++i) REQUIRE(a.send(i, to, out->piece(0, 8)) == 0);
  for (int i = 0; i < 100; ++i) CHECK(a.take().vendor == 0);
  const auto end = Clock::now() + 20s;
  while (b.counter("packetsReceived") < 100 && Clock::now() < end) std::this_thread::sleep_for(1ms);
  CHECK(b.counter("datagramsDropped") == b.counter("packetsLost"));
  CHECK(b.counter("packetsLost") > 20);
  CHECK(b.counter("packetsLost") < 80);
}

TEST_CASE("rate: bytes take their time") {
  Pair pair(with("rate=10"), 1000000);  // 10 MB/s
  const auto begin = Clock::now();
  writeMany(pair, 1, 1000000);
  CHECK(Clock::now() - begin >= 95ms);
}

TEST_CASE("dead: the NIC's work is flushed, its port is down, and others give it up") {
  Options impatient = with("");
  impatient.extra = "SOFTEFA_UNRESPONSIVE=50ms";
  Pair pair(impatient, 100);
  REQUIRE(pair.a.receive(1, pair.here->piece(0, 8)) == 0);
  pair.a.setFaults("dead=1");
  CHECK(pair.a.take().vendor == 1);
  REQUIRE(pair.a.write(2, pair.to, pair.here->piece(0, 8), *pair.there) == 0);
  CHECK(pair.a.take().vendor == 1);
  ibv_port_attr port{};
  REQUIRE(ibv_query_port(pair.a.context, 1, &port) == 0);
  CHECK(port.state == IBV_PORT_DOWN);
  CHECK_THROWS(pair.a.memory(8));

  const Target back = pair.b.meet(pair.a);
  REQUIRE(pair.b.write(3, back, pair.there->piece(0, 8), *pair.here) == 0);
  CHECK(pair.b.take().vendor == 13);
}

TEST_CASE("dying: the NIC dies with the next request, which is flushed") {
  Pair pair(with(""), 100);
  REQUIRE(pair.a.write(1, pair.to, pair.here->piece(0, 8), *pair.there) == 0);
  CHECK(pair.a.take().vendor == 0);
  pair.a.setFaults("dying=1");
  ibv_port_attr port{};
  REQUIRE(ibv_query_port(pair.a.context, 1, &port) == 0);
  CHECK(port.state == IBV_PORT_ACTIVE);
  REQUIRE(pair.a.write(2, pair.to, pair.here->piece(0, 8), *pair.there) == 0);
  CHECK(pair.a.take().vendor == 1);
  CHECK(pair.a.counter("workFlushed") == 1);
  REQUIRE(ibv_query_port(pair.a.context, 1, &port) == 0);
  CHECK(port.state == IBV_PORT_DOWN);
}

TEST_CASE("mute: a host's packets wait, and are given up when it lasts") {
  Options patient = with("mute=b");
  patient.extra = "SOFTEFA_UNRESPONSIVE=20s";
  Pair pair(patient, with(""), 100);
  REQUIRE(pair.a.write(1, pair.to, pair.here->piece(0, 8), *pair.there) == 0);
  CHECK_FALSE(pair.a.next(30ms));
  pair.a.setFaults("unmute=b");
  CHECK(pair.a.take().vendor == 0);

  Options impatient = with("mute=*");
  impatient.extra = "SOFTEFA_UNRESPONSIVE=30ms";
  Node c("c", impatient);
  const auto data = c.memory(8);
  REQUIRE(c.write(1, c.meet(pair.b), data->piece(0, 8), *pair.there) == 0);
  CHECK(c.take().vendor == 13);
}

TEST_CASE("mute: what the other side sends waits too") {
  Pair pair(with(""), with(""), 100);
  pair.a.setFaults("mute=b");
  const Target back = pair.b.meet(pair.a);
  REQUIRE(pair.b.write(1, back, pair.there->piece(0, 8), *pair.here, 0, 5) == 0);
  CHECK_FALSE(pair.a.next(30ms));
  pair.a.setFaults("none");
  CHECK(pair.a.take().imm == 5);
  CHECK(pair.b.take().vendor == 0);
}

TEST_CASE("mute: answers and read data wait too, and what waited is counted once") {
  Pair pair(with(""), with("delay=500ms"), 100);
  pair.here->bytes[0] = 7;
  REQUIRE(pair.a.write(1, pair.to, pair.here->piece(0, 8), *pair.there) == 0);
  REQUIRE(pair.a.read(2, pair.to, pair.here->piece(8, 8), *pair.there) == 0);
  const auto end = Clock::now() + 20s;
  while (pair.b.counter("packetsHeld") < 2 && Clock::now() < end) std::this_thread::yield();
  pair.b.setFaults("none mute=a");  // both are here, and come to their end now
  while (pair.b.counter("bytesWritten") == 0 && Clock::now() < end) std::this_thread::yield();
  CHECK_FALSE(pair.a.next(50ms));
  REQUIRE(pair.a.write(3, pair.to, pair.here->piece(0, 8), *pair.there) == 0);
  while (pair.b.counter("packetsReceived") < 3 && Clock::now() < end) std::this_thread::yield();
  CHECK(pair.b.counter("packetsSent") == 0);
  pair.b.setFaults("none");
  for (int i = 0; i < 3; i++) CHECK(pair.a.take().vendor == 0);
  CHECK(pair.b.counter("packetsReceived") == 3);
}

TEST_CASE("scatter: a NIC that promises no order lands a packet from its end") {
  const size_t size = GENERATE(as<size_t>{}, 4096, 8928);
  const auto lastBeforeFirst = [&](const std::string& generation, unsigned tries) {
    Options options;
    options.generation = generation;
    options.faults = "scatter=1";
    Pair pair(options, size);
    std::fill(pair.here->bytes.begin(), pair.here->bytes.end(), static_cast<unsigned char>(1));
    const SeenTwice twice;
    ibv_mr* const mr =
        ibv_reg_mr_iova2(pair.b.pd, twice.forDevice, size, reinterpret_cast<uintptr_t>(twice.forDevice),
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    REQUIRE(mr);
    const ibv_sge piece = pair.here->piece(0, size);
    bool seen = false;
    for (unsigned i = 0; i < tries && !seen; ++i) {
      twice.forTest[0] = 0;
      twice.forTest[size - 1] = 0;
      REQUIRE(pair.a.writeTo(i, pair.to, piece, mr->rkey, reinterpret_cast<uintptr_t>(twice.forDevice)) == 0);
      while (twice.forTest[size - 1] == 0) std::this_thread::yield();
      seen = twice.forTest[0] == 0;
      CHECK(pair.a.take().vendor == 0);
    }
    ibv_dereg_mr(mr);
    return seen;
  };
  CHECK(lastBeforeFirst("write", 20000));
  CHECK_FALSE(lastBeforeFirst("inorder", 200));
}

TEST_CASE("fail: the n-th call of a name fails with the errno") {
  Node a("a");
  a.setFaults("fail=reg_mr:12@2 fail=create_ah:5 fail=post_recv:11");
  const auto first = a.memory(8);
  CHECK_THROWS(a.memory(8));
  CHECK(errno == ENOMEM);
  CHECK_THROWS(a.handleFor(a.gid()));
  CHECK(errno == EIO);
  CHECK(a.receive(1, first->piece(0, 8)) == EAGAIN);
  CHECK(a.receive(1, first->piece(0, 8)) == 0);
  CHECK(a.handleFor(a.gid()));
}

TEST_CASE("address handles run out where the NIC has few") {
  Options options;
  options.extra = "SOFTEFA_MAX_AH=2";
  Node a("a", options);
  ibv_gid gid = a.gid();
  a.handleFor(gid);
  gid.raw[10] ^= 1;
  ibv_ah* const second = a.handleFor(gid);
  gid.raw[11] ^= 1;
  CHECK_THROWS(a.handleFor(gid));
  CHECK(errno == ENOMEM);
  a.dropHandle(second);
  CHECK(a.handleFor(gid));
}

TEST_CASE("registrations run out where the NIC has few, or memory must not be locked") {
  Options options;
  std::vector<std::byte> memory(8192);
  const auto reg = [&](const Node& node, size_t bytes) {
    const int access = IBV_ACCESS_LOCAL_WRITE;
    return ibv_reg_mr(node.pd, memory.data(), bytes, access);
  };
  SECTION("by number") {
    options.extra = "SOFTEFA_MAX_MR=4";
  }
  SECTION("by size") {
    options.extra = "SOFTEFA_MEMLOCK=10000";
  }
  Node a("a", options);
  std::vector<ibv_mr*> all;
  while (ibv_mr* one = all.size() < 10 ? reg(a, 4096) : nullptr) all.push_back(one);
  CHECK(errno == ENOMEM);
  REQUIRE(!all.empty());
  CHECK(all.size() < 5);
  ibv_dereg_mr(all.back());
  all.back() = reg(a, 4096);
  CHECK(all.back());
  for (ibv_mr* one : all) ibv_dereg_mr(one);
}

TEST_CASE(
    "late: packets of a request that was given up land after its completion, with the bytes of its time") {
  Node a("a", with("late=30ms status=13@1"));
  Node b("b", with(""));
  b.meet(a);
  const auto here = a.memory(8), there = b.memory(8);
  here->bytes[0] = 1;
  REQUIRE(a.write(1, a.meet(b), here->piece(0, 8), *there) == 0);
  CHECK(a.take().vendor == 13);
  here->bytes[0] = 2;
  CHECK(there->bytes[0] == 0);
  const auto end = Clock::now() + std::chrono::seconds(20);
  while (there->bytes[0] == 0 && Clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(there->bytes[0] == 1);
  CHECK_FALSE(a.next(std::chrono::milliseconds(50)));  // and it has no other one
}

TEST_CASE("SOFTEFA_BATCH: completions show several at a time, and none is lost") {
  Options options = with("");
  options.extra = "SOFTEFA_BATCH=4";
  Node a("a", options);
  Node b("b", with(""));
  b.meet(a);
  const auto here = a.memory(8), there = b.memory(8);
  for (uint64_t i = 0; i < 10; i++) REQUIRE(a.write(i, a.meet(b), here->piece(0, 8), *there) == 0);
  std::set<uint64_t> seen;
  for (int i = 0; i < 10; i++) seen.insert(a.take().wrId);
  CHECK(seen.size() == 10);
}

TEST_CASE("nicN: a fault may be of one NIC alone") {
  Options options = with("nic1.status=13@1");
  options.extra = "SOFTEFA_NICS=2";
  Options second = options;
  second.nic = 1;
  Node b("b", with(""));
  const auto there = b.memory(8);
  const auto vendorOf = [&](const Options& which) {
    Node a("a", which);
    b.meet(a);
    const auto here = a.memory(8);
    REQUIRE(a.write(1, a.meet(b), here->piece(0, 8), *there) == 0);
    return a.take().vendor;
  };
  CHECK(vendorOf(options) == 0);
  CHECK(vendorOf(second) == 13);
}

TEST_CASE("faults come from a file too, whenever it changes") {
  const std::string path = "/dev/shm/softefa-control-" + testFabric();
  const auto set = [&](const char* text) {
    std::FILE* const file = std::fopen((path + ".new").c_str(), "w");
    REQUIRE(file);
    std::fputs(text, file);
    std::fclose(file);
    REQUIRE(std::rename((path + ".new").c_str(), path.c_str()) == 0);
  };
  set("dead=0");
  Options options = with("");
  options.extra = "SOFTEFA_CONTROL=" + path;
  Pair pair(options, 100);
  REQUIRE(pair.a.receive(1, pair.here->piece(0, 8)) == 0);
  CHECK_FALSE(pair.a.next(30ms));
  set("nic0.dead=1");
  CHECK(pair.a.take().vendor == 1);
  std::remove(path.c_str());
}

TEST_CASE("faults that are not understood make no device") {
  CHECK_NOTHROW(Node("a", with("nic1.dead=1, reorder=5%")));
  for (const char* wrong : {"los=1%", "fail=post_sent:12@3", "status=20"}) {
    INFO(wrong);
    CHECK_THROWS(Node("a", with(wrong)));
  }
}

TEST_CASE("assignments that are not understood change nothing") {
  Node a("a");
  for (const char* wrong :
       {"reorder=101", "loss", "delay=5min", "dead=2", "status=x", "status=0", "status=16", "fail=reg_mr",
        "fail=reg_mr:0", "fail=regmr:12", "mute=", "nic0.what=1", "nicx.dead=1"}) {
    INFO(wrong);
    CHECK(softefa_set_faults(a.context, (std::string("status=13@1 ") + wrong).c_str()) == EINVAL);
  }
  Node b("b");
  const auto data = a.memory(8), in = b.memory(8);
  REQUIRE(b.receive(1, in->piece(0, 8)) == 0);
  REQUIRE(a.send(1, a.meet(b), data->piece(0, 8)) == 0);
  CHECK(a.take().vendor == 0);
}

TEST_CASE("what happens to a packet follows from the seed and the packet, not from when it comes") {
  const auto decisions = [](uint64_t seed, Clock::duration apart) {
    softefa::Faults faults(seed, 0);
    std::string wrong;
    REQUIRE(faults.apply("reorder=30 loss=10 reorder_time=1ms", wrong));
    std::vector<Clock::duration> all;
    Clock::time_point now{};
    for (uint32_t i = 0; i < 500; ++i) {
      softefa::PacketHeader header;
      header.messageId = i;
      bool lost = false;
      const auto release = faults.release(header, now, lost);
      all.push_back(*release - now);
      now += apart;
    }
    return all;
  };
  CHECK(decisions(1, 1us) == decisions(1, 1ms));
  CHECK(decisions(1, 1us) != decisions(2, 1us));
  const auto some = decisions(3, 1us);
  const auto held = std::count_if(some.begin(), some.end(), [](auto time) { return time.count() > 0; });
  CHECK(held > 100);
  CHECK(held < 300);
}
