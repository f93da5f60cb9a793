// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstring>
#include <dirent.h>

#include "src/base/random.h"
#include "tests/system/local/local_ends.h"

// What the local provider promises beyond the seam: what a lane costs, who becomes a peer, what breaks a
// lane, and in what words.
using namespace weft;
using namespace weft::test;
using enum CompletionKind;

namespace {

constexpr size_t kMiB = size_t{1} << 20;

struct Pair {
  explicit Pair(size_t bytes = kMiB)
      : transport(local::makeTransport(localConfig())), a(*transport, bytes), b(*transport, bytes) {
    joinEnds(a, b);
    a.fill(1);
  }
  std::unique_ptr<Transport> transport;
  SeamEnd a, b;
};

size_t openDescriptors() {
  DIR* directory = ::opendir("/proc/self/fd");
  size_t count = 0;
  while (::readdir(directory)) count++;
  ::closedir(directory);
  return count;
}

}  // namespace

TEST_CASE("local: an end of a lane costs two descriptors, and gives them back") {
  auto transport = local::makeTransport(localConfig());
  const size_t before = openDescriptors();
  {
    SeamEnd a(*transport, 4096), b(*transport, 4096);
    CHECK(openDescriptors() == before + 2);
    joinEnds(a, b);
    CHECK(openDescriptors() == before + 4);
  }
  CHECK(openDescriptors() == before);
}

TEST_CASE("local: who has another nonce is no peer, and both ends know at once") {
  auto transport = local::makeTransport(localConfig());
  SeamEnd a(*transport, 4096), b(*transport, 4096);
  local::Whereabouts wrong = whereIs(a);
  const int kind = GENERATE(0, 1, 2);
  if (kind == 0) wrong.nonce[5] ^= std::byte{1};
  if (kind == 1) wrong.fd = 0;         // another file of the process
  if (kind == 2) wrong.pid = 0x3ffff;  // a process of another namespace, which is not here
  REQUIRE(b.lane->connect(local::encodeAddress(wrong)));
  a.connectTo(b);
  const auto over = [&] { return a.count(connected, false) == 1 && b.count(connected, false) == 1; };
  REQUIRE(pumpUntil({&a, &b}, over));
  CHECK(contains(a.words, "the peer cannot see our memory"));
  CHECK(contains(b.words, kind == 0   ? "another nonce"
                          : kind == 1 ? "is something else here"
                                      : "cannot be opened"));
}

TEST_CASE("local: a peer that connected to another lane is none") {
  auto transport = local::makeTransport(localConfig());
  SeamEnd a(*transport, 4096), b(*transport, 4096), c(*transport, 4096);
  b.connectTo(c);
  c.connectTo(b);
  a.connectTo(b);
  REQUIRE(pumpUntil({&a, &b, &c}, [&] { return a.count(connected, false) == 1; }));
  CHECK(contains(a.words, "connected to another lane"));
  CHECK(b.count(connected, true) == 1);
}

TEST_CASE("local: a peer whose lane stood and ended before we looked stood here, too") {
  auto transport = local::makeTransport(localConfig());
  SeamEnd a(*transport, 4096), b(*transport, 4096);
  const bool stands = GENERATE(true, false);
  const bool retires = GENERATE(true, false);
  a.connectTo(b);
  if (stands) {
    b.connectTo(a);
    REQUIRE(pumpUntil({&b}, [&] { return b.count(connected, true) == 1; }));
  }
  if (stands && retires) {
    b.lane->retire();
    REQUIRE(pumpUntil({&b}, [&] { return b.count(retired, true) == 1; }));
  }
  b.lane.reset();
  REQUIRE(pumpUntil({&a}, [&] { return a.count(stands ? broken : connected, false) == 1; }));
  CHECK(a.count(connected, true) == (stands ? 1 : 0));
}

TEST_CASE("local: a peer that does not look for us is waited for until the deadline") {
  const FakeClock clock;
  const Config config = localConfig();
  auto transport = local::makeTransport(config, clock);
  SeamEnd a(*transport, 4096), b(*transport, 4096);
  a.connectTo(b);
  clock.advance(config.connectTimeout - Milliseconds(1));
  pump({&a, &b}, 1000);
  CHECK(a.count(connected) == 0);
  clock.advance(Milliseconds(1));
  REQUIRE(pumpUntil({&a, &b}, [&] { return a.count(connected, false) == 1; }));
  CHECK(contains(a.words, "WEFT_CONNECT_TIMEOUT"));
}

TEST_CASE("local: what the peer refuses breaks the lane, on both sides and in words") {
  const bool range = GENERATE(false, true);
  const bool reads = GENERATE(false, true);
  Pair pair;
  Work work = pair.a.work(reads ? Opcode::read : Opcode::write, 0, 0, 8, 9);
  if (range)
    work.remoteOffset = kMiB - 4;
  else
    work.remote.key ^= uint64_t{1} << 40;
  REQUIRE(pair.a.post(work));
  const auto over = [&] { return pair.a.count(sent, false) == 1 && pair.b.count(broken, false) == 1; };
  REQUIRE(pumpUntil({&pair.a, &pair.b}, over));
  CHECK(contains(pair.a.words, range ? "it leaves the memory that it names" : "not registered there"));
  CHECK(contains(pair.b.words, range ? "outside the memory" : "not registered here"));
  CHECK_FALSE(pair.a.post(work));
}

TEST_CASE("local: nothing lands in memory that was deregistered, and a work on its way says so") {
  Pair pair(16 * kMiB);
  REQUIRE(pair.a.post(pair.a.work(Opcode::write, 0, 0, 16 * kMiB, 1)));
  REQUIRE(pumpUntil({&pair.a, &pair.b}, [&] { return pair.b.bytes[0] != 0 || pair.b.bytes[1] != 0; }));
  pair.b.memory.reset();
  const std::vector<uint8_t> then = pair.b.bytes;
  REQUIRE(pumpUntil({&pair.a, &pair.b}, [&] { return pair.a.count(sent, false) == 1; }));
  CHECK(pair.b.bytes == then);
  CHECK(contains(pair.b.words, "not registered here (any more)"));
}

TEST_CASE("local: a peer that closes without a word breaks the lane") {
  Pair pair;
  const bool working = GENERATE(false, true);
  if (working) REQUIRE(pair.a.post(pair.a.work(Opcode::write, 0, 0, 8, 9)));
  pair.b.lane.reset();
  REQUIRE(pumpUntil({&pair.a}, [&] { return pair.a.count(working ? sent : broken, false) == 1; }));
  CHECK(contains(pair.a.words, "the peer closed its end"));
  pair.a.lane->retire();
  REQUIRE(pumpUntil({&pair.a}, [&] { return pair.a.count(retired, true) == 1; }));
}

TEST_CASE("local: what a peer had not landed when we retired never lands") {
  const size_t size = GENERATE(8u, 4096u, 300000u);
  Pair pair;
  std::fill(pair.b.bytes.begin(), pair.b.bytes.end(), uint8_t{0});
  REQUIRE(pair.a.post(pair.a.work(Opcode::writeNotify, 0, 0, size, 1)));
  pair.a.lane->retire();
  REQUIRE(pumpUntil({&pair.a}, [&] { return pair.a.count(retired, true) == 1; }));
  CHECK(pair.a.count(sent, false) == 1);
  pair.a.memory.reset();
  pump({&pair.b}, 1000);
  CHECK(pair.b.count(notified) == 0);
  CHECK(std::count(pair.b.bytes.begin(), pair.b.bytes.end(), 0) == static_cast<ptrdiff_t>(kMiB));
}

TEST_CASE("local: both ends may retire at once, with works under way") {
  Pair pair;
  for (size_t i = 0; i < 4; i++) {
    (void)pair.a.post(pair.a.work(Opcode::writeNotify, 0, 0, 200000, i));
    (void)pair.b.post(pair.b.work(Opcode::writeNotify, 0, 0, 200000, i));
  }
  pair.a.lane->retire();
  pair.b.lane->retire();
  const auto over = [&] { return pair.a.count(retired, true) == 1 && pair.b.count(retired, true) == 1; };
  REQUIRE(pumpUntil({&pair.a, &pair.b}, over));
  CHECK(pair.a.count(broken) + pair.b.count(broken) == 0);
}

// Many times round the inbox and its ring, in all the ways that bytes travel, at sizes around their limits.
TEST_CASE("local: everything arrives whole, however often the rings wrap") {
  Pair pair;
  const size_t sizes[] = {0,     1,     79,    80,    81,    127,    128,    129,   8191,
                          16384, 16385, 65535, 65536, 65537, 262144, 262145, 700001};
  uint32_t next = 0;
  for (uint32_t i = 0; i < 2000; i++) {
    const size_t size = sizes[i % std::size(sizes)];
    const size_t at = (i * 4099) % (kMiB - 700001);
    Work work = pair.a.work(Opcode::writeNotify, at, kMiB - 700001 - at, size, i);
    work.imm = i;
    work.unsignaled = i % 3 == 0;
    REQUIRE(pumpUntil({&pair.a, &pair.b}, [&] { return pair.a.post(work); }));
    if (i % 7 != 0) continue;
    REQUIRE(pumpUntil({&pair.a, &pair.b}, [&] { return pair.b.count(notified) == i + 1 - next; }));
    CHECK(pair.b.holds(kMiB - 700001 - at, pair.a, at, size));
    for (const Completion& told : pair.b.seen) {
      if (told.kind != notified) continue;
      REQUIRE(told.imm == next);
      REQUIRE(told.length == sizes[next % std::size(sizes)]);
      next++;
    }
    pair.b.seen.clear();
    pair.a.seen.clear();
  }
}

// What one end says it took, by word and by frame, crosses what the other end says.
TEST_CASE("local: both ends write at once, now with and now without an answer") {
  Pair pair;
  pair.b.fill(2);
  SeededRandom random(7);
  const size_t sizes[] = {8, 8, 100, 5000, 40000};
  uint64_t posted[2] = {}, signaled[2] = {};
  for (int i = 0; i < 30000; i++) {
    const size_t which = random.below(2);
    SeamEnd& from = which == 0 ? pair.a : pair.b;
    Work work = from.work(Opcode::writeNotify, 0, kMiB / 2, sizes[random.below(std::size(sizes))]);
    work.unsignaled = random.chance(0.7);
    if (from.post(work)) posted[which]++, signaled[which] += work.unsignaled ? 0 : 1;
    if (random.chance(0.5)) (random.chance(0.5) ? pair.a : pair.b).poll();
  }
  const auto over = [&] {
    return pair.a.count(notified) == posted[1] && pair.b.count(notified) == posted[0] &&
           pair.a.count(sent, true) == signaled[0] && pair.b.count(sent, true) == signaled[1];
  };
  CHECK(pumpUntil({&pair.a, &pair.b}, over));
  CHECK(posted[0] > 1000);
  CHECK(pair.a.words.empty());
  CHECK(pair.b.words.empty());
}
