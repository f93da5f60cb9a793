// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <sys/syscall.h>
#include <unistd.h>

#include "src/base/log.h"
#include "tests/system/tcp/raw_peer.h"

// What the tcp provider promises beyond the seam: when connections are opened, what breaks a lane, and in
// what words.
using namespace weft;
using namespace weft::test;
using enum CompletionKind;

namespace {

constexpr size_t kBulk = 64 << 10;
size_t calls = 0;  // of sendmsg, by the provider
size_t reads = 0;  // by recv

struct Pair {
  explicit Pair(const Config& config = tcpConfig(), size_t bytes = 1 << 20)
      : transport(tcp::makeTransport(config)), a(*transport, bytes), b(*transport, bytes) {
    joinEnds(a, b);
    a.fill(1);
  }
  void write(SeamEnd& from, SeamEnd& to, size_t bytes, size_t count) {
    const size_t before = to.count(notified);
    for (size_t i = 0; i < count; i++) {
      const Work work = from.work(Opcode::writeNotify, i * bytes, i * bytes, bytes, i);
      REQUIRE(pumpUntil({&from, &to}, [&] { return from.post(work); }));
    }
    REQUIRE(pumpUntil({&from, &to}, [&] { return to.count(notified) == before + count; }));
  }
  std::unique_ptr<Transport> transport;
  SeamEnd a, b;
};

bool contains(const std::vector<std::string>& words, const std::string& part) {
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& one) { return one.find(part) != std::string::npos; });
}

}  // namespace

// In the place of the C library's.
extern "C" ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  calls++;
  return ::syscall(SYS_sendmsg, fd, message, flags);
}

extern "C" ssize_t recv(int fd, void* into, size_t bytes, int flags) {
  reads++;
  return ::syscall(SYS_recvfrom, fd, into, bytes, flags, nullptr, nullptr);
}

TEST_CASE("tcp: between many posts every other poll reads, else each") {
  constexpr size_t kMany = 24, kPolls = 10;
  Pair pair(tcpConfig(1));
  pump({&pair.a, &pair.b}, 100);
  const auto readsOf = [&pair] {
    reads = 0;
    for (size_t i = 0; i < kPolls; i++) pair.a.poll();
    return reads;
  };
  CHECK(readsOf() == kPolls);
  const size_t posted = GENERATE(1, size_t{kMany});
  const std::vector<Work> works(posted, pair.a.work(Opcode::write, 0, 0, 8));
  CHECK(pair.a.lane->post(works) == posted);
  while (pair.a.count(sent) < posted) pair.a.poll();
  CHECK(readsOf() == (posted == kMany ? kPolls / 2 : kPolls));
  pump({&pair.a, &pair.b}, 2 * kMany);
  CHECK(readsOf() == kPolls);
}

TEST_CASE("tcp: what is posted at once leaves in one call for each connection") {
  constexpr size_t kBulkStreams = 3, kEach = 2;
  Pair pair(tcpConfig(1 + kBulkStreams));
  const size_t before = openDescriptors();
  pair.write(pair.a, pair.b, kBulk, 1);
  REQUIRE(pumpUntil({&pair.a, &pair.b}, [&] { return openDescriptors() == before + 2 * kBulkStreams; }));
  pair.write(pair.a, pair.b, kBulk, kBulkStreams);  // all of them stand
  pump({&pair.a, &pair.b}, 100);
  std::vector<Work> works;
  for (size_t i = 0; i < kEach * kBulkStreams; i++)
    works.push_back(pair.a.work(Opcode::writeNotify, i * kBulk, i * kBulk, kBulk, i));
  calls = 0;
  CHECK(pair.a.lane->post(works) == works.size());
  CHECK(calls == kBulkStreams);
  REQUIRE(pumpUntil({&pair.a, &pair.b},
                    [&] { return pair.b.count(notified) == 1 + kBulkStreams + works.size(); }));
  CHECK(pair.b.holds(0, pair.a, 0, works.size() * kBulk));
}

TEST_CASE("tcp: a peer is one descriptor, and another one for each further connection once much flows") {
  const int streams = GENERATE(1, 2, 4);
  const bool aSends = GENERATE(true, false);
  auto transport = tcp::makeTransport(tcpConfig(streams));
  SeamEnd a(*transport, 1 << 20), b(*transport, 1 << 20);
  const size_t before = openDescriptors();  // both listen
  joinEnds(a, b);
  CHECK(openDescriptors() == before + 2);  // both ends of one
  SeamEnd& from = aSends ? a : b;
  SeamEnd& to = aSends ? b : a;
  const auto write = [&](size_t bytes) {
    const size_t told = to.count(notified);
    REQUIRE(from.post(from.work(Opcode::writeNotify, 0, 0, bytes)));
    REQUIRE(pumpUntil({&from, &to}, [&] { return to.count(notified) == told + 1; }));
  };
  for (int i = 0; i < 20; i++) write(100);
  pump({&a, &b}, 100);
  CHECK(openDescriptors() == before + 2);
  write(kBulk);
  const size_t all = before + 2 * static_cast<size_t>(streams);
  CHECK(pumpUntil({&a, &b}, [&] { return openDescriptors() == all; }));
  for (int i = 0; i < 20; i++) write(kBulk);
  CHECK(openDescriptors() == all);
  CHECK(a.count(broken) + b.count(broken) == 0);
}

TEST_CASE("tcp: of two ends the one with fewer connections decides") {
  auto one = tcp::makeTransport(tcpConfig(64));
  auto other = tcp::makeTransport(tcpConfig(2));
  SeamEnd a(*one, 1 << 20), b(*other, 1 << 20);
  const size_t before = openDescriptors();
  joinEnds(a, b);
  for (size_t i = 0; i < 8; i++) {
    REQUIRE(a.post(a.work(Opcode::writeNotify, 0, 0, kBulk)));
    REQUIRE(b.post(b.work(Opcode::writeNotify, 0, 0, kBulk)));
    REQUIRE(pumpUntil({&a, &b}, [&] { return a.count(notified) == i + 1 && b.count(notified) == i + 1; }));
  }
  pump({&a, &b}, 100);
  CHECK(openDescriptors() == before + 4);
}

TEST_CASE("tcp: what the peer refuses breaks the lane, on both sides and in words") {
  const bool delivered = GENERATE(false, true);
  const bool range = GENERATE(false, true);
  Pair pair;
  Work work = pair.a.work(Opcode::write, 0, 0, 8, 9);
  work.delivered = delivered;
  if (range)
    work.remoteOffset = (1 << 20) - 4;
  else
    work.remote.key ^= uint64_t{1} << 40;
  REQUIRE(pair.a.post(work));
  const auto over = [&] {
    return pair.a.count(delivered ? sent : broken, false) == 1 && pair.b.count(broken, false) == 1;
  };
  REQUIRE(pumpUntil({&pair.a, &pair.b}, over));
  CHECK(contains(pair.a.words, range ? "it leaves the memory that it names" : "not registered there"));
  CHECK(contains(pair.b.words, range ? "outside the memory" : "not registered here"));
  CHECK(pair.a.post(work) == false);
}

TEST_CASE("tcp: nothing lands in memory that was deregistered, and a work on its way says so") {
  Pair pair(tcpConfig(1), 16 << 20);
  std::fill(pair.b.bytes.begin(), pair.b.bytes.end(), uint8_t{0});
  Work work = pair.a.work(Opcode::write, 0, 0, 16 << 20, 1);
  work.delivered = true;
  REQUIRE(pair.a.post(work));
  REQUIRE(pumpUntil({&pair.a, &pair.b}, [&] { return pair.b.bytes[0] != 0 || pair.b.bytes[1] != 0; }));
  pair.b.memory.reset();
  const std::vector<uint8_t> then = pair.b.bytes;
  REQUIRE(pumpUntil({&pair.a, &pair.b}, [&] { return pair.a.count(sent, false) == 1; }));
  CHECK(pair.b.bytes == then);
  CHECK(contains(pair.b.words, "not registered here (any more)"));
}

TEST_CASE("tcp: memory that goes while it is read breaks the lane") {
  Pair pair(tcpConfig(1), 16 << 20);
  REQUIRE(pair.a.post(pair.a.work(Opcode::read, 0, 0, 16 << 20, 1)));
  for (int i = 0; i < 3; i++) pair.b.poll();
  pair.b.memory.reset();
  REQUIRE(pumpUntil({&pair.a, &pair.b}, [&] { return pair.a.count(sent, false) == 1; }));
  CHECK(pair.b.count(broken, false) == 1);
}

TEST_CASE("tcp: a peer that closes without a word breaks the lane, and vouches for what was written") {
  Pair pair;
  pair.b.lane.reset();
  REQUIRE(pumpUntil({&pair.a}, [&] { return pair.a.count(broken, false) == 1; }));
  CHECK(contains(pair.a.words, "the peer closed its end"));
  CHECK(contains(pair.a.words, "127.0.0.1"));
  CHECK(contains(pair.a.words, "lo"));
  pair.a.lane->retire();
  REQUIRE(pumpUntil({&pair.a}, [&] { return pair.a.count(retired) == 1; }));
  CHECK(pair.a.count(retired, true) == 1);
}

TEST_CASE("tcp: a peer that does not answer the goodbye is cut off, and what it has may land") {
  Pair pair;
  REQUIRE(pair.a.post(pair.a.work(Opcode::writeNotify, 0, 0, 1000, 1)));
  pair.a.lane->retire();
  REQUIRE(pumpUntil({&pair.a}, [&] { return pair.a.count(retired) == 1; }));
  CHECK(pair.a.count(retired, false) == 1);
  CHECK(pair.a.first(retired)->error == ETIMEDOUT);
  CHECK(contains(pair.a.words, "did not acknowledge"));
  pair.b.lane->retire();
  REQUIRE(pumpUntil({&pair.b}, [&] { return pair.b.count(retired) == 1; }));
  std::fill(pair.b.bytes.begin(), pair.b.bytes.end(), uint8_t{0});
  pump({&pair.b}, 100);
  CHECK(std::count(pair.b.bytes.begin(), pair.b.bytes.end(), 0) == 1 << 20);
}

TEST_CASE("tcp: both ends may say goodbye at once") {
  Pair pair;
  for (size_t i = 0; i < 4; i++) {
    REQUIRE(pair.a.post(pair.a.work(Opcode::writeNotify, 0, 0, kBulk, i)));
    REQUIRE(pair.b.post(pair.b.work(Opcode::writeNotify, 0, 0, kBulk, i)));
  }
  pair.a.lane->retire();
  pair.b.lane->retire();
  REQUIRE(pumpUntil({&pair.a, &pair.b},
                    [&] { return pair.a.count(retired) == 1 && pair.b.count(retired) == 1; }));
  CHECK(pair.a.count(retired, true) + pair.b.count(retired, true) == 2);
  CHECK(pair.a.count(broken) + pair.b.count(broken) == 0);
}

TEST_CASE("tcp: nobody at the peer's address is told with host and reason") {
  auto transport = tcp::makeTransport(tcpConfig());
  SeamEnd a(*transport, 4096);
  tcp::LaneAddress nowhere = addressOf(a);
  nowhere.lane = 99;
  std::fill(nowhere.ip.begin(), nowhere.ip.begin() + 4, std::byte{127});
  nowhere.port = 65535;  // above ours: we dial
  REQUIRE(a.lane->connect(tcp::encode(nowhere)));
  REQUIRE(pumpUntil({&a}, [&] { return a.count(connected, false) == 1; }));
  CHECK(contains(a.words, "127.127.127.127:65535"));
  CAPTURE(a.words);
  CHECK(contains(a.words, "Connection refused"));
}

TEST_CASE("tcp: a peer that does not dial is waited for until the deadline") {
  const FakeClock clock;
  const Config config = tcpConfig();
  auto transport = tcp::makeTransport(config, clock);
  SeamEnd a(*transport, 4096);
  tcp::LaneAddress silent = addressOf(a);
  std::fill(silent.ip.begin(), silent.ip.begin() + 4, std::byte{0});
  REQUIRE(a.lane->connect(tcp::encode(silent)));
  clock.advance(config.connectTimeout - Milliseconds(1));
  pump({&a}, 1000);
  CHECK(a.count(connected) == 0);
  clock.advance(Milliseconds(1));
  REQUIRE(pumpUntil({&a}, [&] { return a.count(connected, false) == 1; }));
  CHECK(contains(a.words, "WEFT_CONNECT_TIMEOUT"));
}

// More of them than are read at every poll, and quiet for long enough not to be.
TEST_CASE("tcp: lanes that were quiet are heard again") {
  constexpr size_t kPeers = 24;
  auto transport = tcp::makeTransport(tcpConfig());
  SeamEnd hub(*transport, 65536);
  std::vector<std::unique_ptr<SeamEnd>> peers;
  std::vector<std::unique_ptr<Endpoint>> lanes;
  for (size_t i = 0; i < kPeers; i++) {
    peers.push_back(std::make_unique<SeamEnd>(*transport, 4096));
    lanes.push_back(hub.queue->openEndpoint().take());
    REQUIRE(lanes.back()->connect(peers[i]->lane->address()));
    REQUIRE(peers[i]->lane->connect(lanes.back()->address()));
    peers[i]->importFrom(hub);
  }
  for (size_t i = 0; i < kPeers; i++)
    REQUIRE(pumpUntil({&hub, peers[i].get()}, [&] { return peers[i]->count(connected, true) == 1; }));
  for (size_t round = 1; round <= 3; round++) {
    for (int i = 0; i < 3000; i++) hub.poll();
    for (size_t i = 0; i < kPeers; i++) {
      Work work = peers[i]->work(Opcode::writeNotify, 0, 64 * i, 8);
      work.imm = static_cast<uint32_t>(i);
      REQUIRE(peers[i]->post(work));
    }
    REQUIRE(pumpUntil({&hub}, [&] { return hub.count(notified) == round * kPeers; }));
  }
  // One that is quiet is missed when it goes, too.
  for (int i = 0; i < 3000; i++) hub.poll();
  peers.front()->lane.reset();
  REQUIRE(pumpUntil({&hub}, [&] { return hub.count(broken, false) == 1; }));
  for (auto& lane : lanes) lane.reset();
}
