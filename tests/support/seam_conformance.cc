// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/support/seam_conformance.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "tests/support/catch.h"
#include "tests/support/seam_end.h"

namespace weft::test {

namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kSizes[] = {0, 1, 127, 4096, kMiB + 3};
constexpr size_t kOffsets[] = {0, 1, 61};
constexpr size_t kRoom = kMiB + 4096;
constexpr int kIdlePolls = 2000;  // long enough for something forbidden to show up

using enum CompletionKind;

struct Pair {
  explicit Pair(const SeamUnderTest& seam, size_t bytes = kRoom, QueueDepths depths = {})
      : left(seam.make()), right(seam.make()), a(*left, bytes, depths), b(*right, bytes, depths) {
    joinEnds(a, b);
    a.fill(1);
  }
  std::unique_ptr<Transport> left, right;
  SeamEnd a, b;
};

bool allZero(const std::vector<uint8_t>& bytes, size_t from, size_t to) {
  if (from == to) return true;
  return bytes[from] == 0 && std::memcmp(bytes.data() + from, bytes.data() + from + 1, to - from - 1) == 0;
}

// A lane that posts nothing more than its Queue takes: polls both ends until everything is posted.
void postAll(SeamEnd& from, SeamEnd& to, const std::vector<Work>& works) {
  size_t done = 0;
  REQUIRE(pumpUntil({&from, &to}, [&] {
    done += from.lane->post(std::span(works).subspan(done));
    return done == works.size();
  }));
}

std::map<uint64_t, int> contextsOf(const SeamEnd& end) {
  std::map<uint64_t, int> times;
  for (const Completion& completion : end.seen)
    if (completion.kind == sent) times[completion.context]++;
  return times;
}

}  // namespace

void checkDevices(const SeamUnderTest& seam) {
  auto transport = seam.make();
  CHECK_FALSE(transport->name().empty());
  auto infos = transport->discover();
  REQUIRE(infos);
  REQUIRE_FALSE(infos->empty());
  std::set<std::string> names;
  for (const DeviceInfo& info : *infos) {
    CHECK(names.insert(info.name).second);
    CHECK(info.speedMbps > 0);
    CHECK(info.maxWriteBytes >= kMiB);
    const auto device = transport->open(info);
    REQUIRE(device);
    CHECK((*device)->info().name == info.name);
    CHECK((*device)->info().delivery == info.delivery);
  }
  DeviceInfo unknown = infos->front();
  unknown.name = "no such device";
  CHECK_FALSE(transport->open(unknown));
}

void checkConnecting(const SeamUnderTest& seam) {
  Pair pair(seam, 4096);
  const auto address = pair.a.lane->address();
  CHECK(address.size() > 0);
  CHECK(address.size() <= 256);
  CHECK(pair.a.first(connected)->source == pair.a.lane.get());
  const std::vector<std::byte> rubbish(7, std::byte{0x5a});
  CHECK_FALSE(pair.a.lane->import(rubbish));
  CHECK_FALSE(pair.a.lane->import({}));
  SeamEnd stranger(pair.a, 4096);
  if (stranger.lane->connect(rubbish))  // where it is only found out later
    CHECK(pumpUntil({&stranger}, [&] { return stranger.count(connected, false) == 1; }));
}

void checkWrites(const SeamUnderTest& seam) {
  Pair pair(seam);
  for (const size_t size : kSizes) {
    for (const size_t offset : kOffsets) {
      std::fill(pair.b.bytes.begin(), pair.b.bytes.end(), uint8_t{0});
      REQUIRE(pair.a.post(pair.a.work(Opcode::write, 64 - offset, 128 + offset, size, size + offset)));
      const size_t before = pair.a.count(sent, true);
      CHECK(pumpUntil({&pair.a, &pair.b}, [&] {
        return pair.a.count(sent, true) == before + 1 &&
               pair.b.holds(128 + offset, pair.a, 64 - offset, size);
      }));
      CHECK(allZero(pair.b.bytes, 0, 128 + offset));
      CHECK(allZero(pair.b.bytes, 128 + offset + size, pair.b.bytes.size()));
    }
  }
  CHECK(pair.b.count(notified) == 0);
  CHECK(pair.a.count(sent, false) == 0);
}

void checkNotifications(const SeamUnderTest& seam) {
  Pair pair(seam);
  uint32_t imm = 0x80000001u;
  for (const size_t size : kSizes) {
    for (const size_t offset : kOffsets) {
      std::fill(pair.b.bytes.begin(), pair.b.bytes.end(), uint8_t{0});
      pair.b.seen.clear();
      Work work = pair.a.work(Opcode::writeNotify, offset, offset * 3, size);
      work.imm = imm += 0x01020305u;
      REQUIRE(pair.a.post(work));
      for (int i = 0; i < 3; i++) CHECK(pair.b.queue->poll({}) == 0);
      REQUIRE(pumpUntil({&pair.a, &pair.b}, [&] { return pair.b.count(notified) == 1; }));
      const Completion& told = *pair.b.first(notified);
      CHECK(told.imm == imm);
      CHECK(told.length == size);
      CHECK((told.source == pair.b.lane.get() || told.source == nullptr));
      CHECK(pair.b.holds(offset * 3, pair.a, offset, size));
    }
  }
  pump({&pair.a, &pair.b}, kIdlePolls);
  CHECK(pair.b.count(notified) == 1);  // the last one, once
}

void checkReads(const SeamUnderTest& seam) {
  Pair pair(seam);
  pair.b.fill(2);
  for (const size_t size : kSizes) {
    if (size == 0) continue;
    for (const size_t offset : kOffsets) {
      std::fill(pair.a.bytes.begin(), pair.a.bytes.end(), uint8_t{0});
      pair.a.seen.clear();
      REQUIRE(pair.a.post(pair.a.work(Opcode::read, 128 + offset, 64 - offset, size, 5)));
      REQUIRE(pumpUntil({&pair.a, &pair.b}, [&] { return pair.a.count(sent) == 1; }));
      CHECK(pair.a.first(sent)->ok);
      CHECK(pair.a.first(sent)->context == 5);
      CHECK(pair.a.holds(128 + offset, pair.b, 64 - offset, size));
      CHECK(allZero(pair.a.bytes, 0, 128 + offset));
      CHECK(allZero(pair.a.bytes, 128 + offset + size, pair.a.bytes.size()));
    }
  }
}

namespace {

// Puts messages where their labels say: `imm` 0 at the offset in the label's first word, 1 nowhere, 2 nowhere
// as it may not come; 3 as 0, but only when it was asked so often, and 4 when the message may wait no longer.
struct LabelPlacer final : Placer {
  explicit LabelPlacer(const SeamEnd& end) : of(end) {}
  Place place(Endpoint& at, const MessageLabel& label, uint64_t length, bool mayWait) override {
    atLane = atLane && &at == of.lane.get();
    asked.push_back({label, length});
    if (label.imm == 2) return {.refusal = "the test does not want it"};
    if (label.imm == 1) return {};
    if (mayWait && (label.imm == 4 || (label.imm == 3 && ++waited < kAsks))) return {.later = true};
    return {of.memory.get(), label.words.base, label.words.key, nullptr};
  }
  struct Asked {
    MessageLabel label;
    uint64_t length;
  };
  static constexpr int kAsks = 9;
  const SeamEnd& of;
  int waited = 0;
  std::vector<Asked> asked;
  bool atLane = true;
};

Work messageOf(SeamEnd& from, uint32_t imm, size_t at, size_t to, size_t length, uint64_t context) {
  Work work = from.work(Opcode::message, at, 0, length);
  work.imm = imm;
  work.remote = {to, context};
  work.remoteOffset = 0;
  return work;
}

// A message may have to wait for its place, and in the end goes on without. Those behind it keep their order
// and its bytes.
void checkMessagesThatWait(Pair& pair) {
  for (const uint32_t imm : {3u, 4u, 3u}) {
    LabelPlacer placer(pair.b);
    pair.b.queue->placeBy(&placer);
    std::fill(pair.b.bytes.begin(), pair.b.bytes.end(), uint8_t{0});
    pair.b.seen.clear();
    std::vector<Work> works;
    for (size_t i = 0; i < 4; i++)
      works.push_back(messageOf(pair.a, i % 2 == 0 ? imm : 0, 13 * i, i * 200'000, 150'000, i + 1));
    postAll(pair.a, pair.b, works);
    REQUIRE(pumpUntil({&pair.a, &pair.b}, [&] { return pair.b.count(landed) == 4; }));
    for (size_t i = 0; i < 4; i++) CHECK(pair.b.holds(i * 200'000, pair.a, 13 * i, 150'000));
    CHECK(placer.atLane);
  }
}

// Without a Placer nothing lands, and the lane ends.
void checkMessagesNobodyTakes(const SeamUnderTest& seam) {
  Pair pair(seam);
  std::fill(pair.b.bytes.begin(), pair.b.bytes.end(), uint8_t{0});
  REQUIRE(pair.a.post(messageOf(pair.a, 0, 0, 0, 100, 1)));
  REQUIRE(pumpUntil({&pair.a, &pair.b}, [&] { return pair.b.count(broken) == 1; }));
  CHECK(pair.b.count(landed) == 0);
  CHECK(allZero(pair.b.bytes, 0, pair.b.bytes.size()));
}

}  // namespace

void checkMessages(const SeamUnderTest& seam) {
  Pair pair(seam);
  if (!pair.a.device->info().messages) return;
  checkMessagesNobodyTakes(seam);
  LabelPlacer placer(pair.b);
  pair.b.queue->placeBy(&placer);
  uint64_t context = uint64_t{1} << 63;
  for (const size_t size : kSizes) {
    for (const size_t offset : kOffsets) {
      std::fill(pair.b.bytes.begin(), pair.b.bytes.end(), uint8_t{0});
      pair.b.seen.clear();
      // The first one is dropped, and the next one is found behind it.
      postAll(
          pair.a, pair.b,
          {messageOf(pair.a, 1, 7, 0, size, 0), messageOf(pair.a, 0, offset, offset * 3, size, ++context)});
      REQUIRE(pumpUntil({&pair.a, &pair.b}, [&] { return pair.b.count(landed) == 1; }));
      CHECK(pair.b.first(landed)->context == context);
      CHECK(pair.b.first(landed)->length == size);
      CHECK(pair.b.holds(offset * 3, pair.a, offset, size));
      CHECK(allZero(pair.b.bytes, 0, offset * 3));
      CHECK(allZero(pair.b.bytes, offset * 3 + size, pair.b.bytes.size()));
    }
  }
  CHECK(placer.asked.size() == 2 * std::size(kSizes) * std::size(kOffsets));
  CHECK(placer.atLane);
  checkMessagesThatWait(pair);
  pair.b.queue->placeBy(&placer);
  // A refused message breaks the lane, and the receiver has the words of the refusal.
  REQUIRE(pair.a.post(messageOf(pair.a, 2, 0, 0, 100, 0)));
  REQUIRE(pumpUntil({&pair.a, &pair.b}, [&] { return pair.b.count(broken) == 1; }));
  CHECK(pair.b.words.back().find("the test does not want it") != std::string::npos);
}

void checkContexts(const SeamUnderTest& seam) {
  Pair pair(seam, 65536);
  std::vector<Work> works;
  for (uint64_t i = 0; i < 300; i++) {
    const Opcode op = i % 3 == 0 ? Opcode::read : i % 3 == 1 ? Opcode::write : Opcode::writeNotify;
    works.push_back(pair.a.work(op, 100 * i, 100 * i, 100, ~uint64_t{0} - i));
  }
  postAll(pair.a, pair.b, works);
  CHECK(pumpUntil({&pair.a, &pair.b},
                  [&] { return pair.a.count(sent) >= 300 && pair.b.count(notified) >= 100; }));
  pump({&pair.a, &pair.b}, kIdlePolls);
  const auto times = contextsOf(pair.a);
  CHECK(times.size() == 300);
  for (const Work& work : works) CHECK(times.at(work.context) == 1);
  CHECK(pair.b.count(notified) == 100);
  CHECK(pair.a.count(sent, false) == 0);
}

void checkUnsignaled(const SeamUnderTest& seam) {
  Pair pair(seam, 65536, {.sends = 16});
  std::vector<Work> works;
  for (size_t i = 0; i < 100; i++) {
    works.push_back(pair.a.work(i % 2 ? Opcode::write : Opcode::writeNotify, 64 * i, 64 * i, 64));
    works.back().unsignaled = true;
  }
  postAll(pair.a, pair.b, works);
  CHECK(pumpUntil({&pair.a, &pair.b},
                  [&] { return pair.b.count(notified) == 50 && pair.b.holds(0, pair.a, 0, 6400); }));
  pump({&pair.a, &pair.b}, kIdlePolls);
  CHECK(pair.a.count(sent) == 0);
}

void checkDelivered(const SeamUnderTest& seam) {
  Pair pair(seam);
  const Delivery delivery = pair.a.device->info().delivery;
  if (delivery == Delivery::accepted) return;  // nothing is promised
  for (const size_t size : kSizes) {
    std::fill(pair.b.bytes.begin(), pair.b.bytes.end(), uint8_t{0});
    pair.a.seen.clear();
    Work work = pair.a.work(size % 2 ? Opcode::write : Opcode::writeNotify, 3, 5, size);
    work.delivered = delivery == Delivery::selectable;
    REQUIRE(pair.a.post(work));
    // Looked at right after the poll that reports it, before the target gets another turn.
    REQUIRE(pumpUntil({&pair.b, &pair.a}, [&] { return pair.a.count(sent, true) == 1; }));
    CHECK(pair.b.holds(5, pair.a, 3, size));
  }
}

void checkDepth(const SeamUnderTest& seam) {
  Pair pair(seam, 65536, {.sends = 8, .notifications = 64});
  const QueueDepths granted = pair.a.queue->depths();
  CHECK(granted.sends > 0);
  CHECK(granted.notifications > 0);
  std::vector<Work> works;
  for (size_t i = 0; i < granted.sends + 5; i++)
    works.push_back(pair.a.work(Opcode::write, i % 1024, i % 1024, 1, i));
  const size_t taken = pair.a.lane->post(works);
  CHECK(taken > 0);
  CHECK(taken <= granted.sends);
  postAll(pair.a, pair.b, {works.begin() + static_cast<ptrdiff_t>(taken), works.end()});
  CHECK(pumpUntil({&pair.a, &pair.b}, [&] { return pair.a.count(sent, true) == works.size(); }));
  CHECK(contextsOf(pair.a).size() == works.size());
}

void checkLoopback(const SeamUnderTest& seam) {
  auto transport = seam.make();
  SeamEnd self(*transport, 65536);
  self.connectTo(self);
  REQUIRE(pumpUntil({&self}, [&] { return self.count(connected, true) == 1; }));
  self.fill(3);
  Work work = self.work(Opcode::writeNotify, 0, 32768, 1000);
  work.imm = 7;
  REQUIRE(self.post(work));
  REQUIRE(pumpUntil({&self}, [&] { return self.count(notified) == 1 && self.count(sent, true) == 1; }));
  CHECK(self.first(notified)->imm == 7);
  CHECK(self.holds(32768, self, 0, 1000));
  REQUIRE(self.post(self.work(Opcode::read, 2000, 32768, 1000)));
  REQUIRE(pumpUntil({&self}, [&] { return self.count(sent, true) == 2; }));
  CHECK(self.holds(2000, self, 32768, 1000));
}

void checkManyLanes(const SeamUnderTest& seam) {
  auto transport = seam.make();
  SeamEnd hub(*transport, 65536);
  SeamEnd one(*transport, 4096), two(*transport, 4096);
  auto second = hub.queue->openEndpoint();
  REQUIRE(second);
  joinEnds(hub, one);
  REQUIRE((*second)->connect(two.lane->address()));
  REQUIRE(two.lane->connect((*second)->address()));
  two.importFrom(hub);
  REQUIRE(pumpUntil({&hub, &two},
                    [&] { return hub.count(connected, true) == 2 && two.count(connected, true) == 1; }));
  one.fill(4);
  two.fill(5);
  Work fromOne = one.work(Opcode::writeNotify, 0, 0, 4096),
       fromTwo = two.work(Opcode::writeNotify, 0, 8192, 4096);
  fromOne.imm = 1;
  fromTwo.imm = 2;
  REQUIRE(one.post(fromOne));
  REQUIRE(two.post(fromTwo));
  REQUIRE(pumpUntil({&hub, &one, &two}, [&] { return hub.count(notified) == 2; }));
  CHECK(hub.holds(0, one, 0, 4096));
  CHECK(hub.holds(8192, two, 0, 4096));
  for (const Completion& completion : hub.seen) {
    if (completion.kind != notified || !completion.source) continue;
    CHECK(completion.source == (completion.imm == 1 ? hub.lane.get() : second->get()));
  }
}

void checkRetire(const SeamUnderTest& seam) {
  Pair pair(seam);
  std::vector<Work> works;
  for (size_t i = 0; i < 24; i++) {
    const Opcode op = i % 2 ? Opcode::write : Opcode::writeNotify;
    works.push_back(pair.a.work(op, 0, i % 7, i % 3 ? 1000 : kMiB, i));
  }
  const size_t taken = pair.a.lane->post(works);
  REQUIRE(taken > 0);
  pair.a.lane->retire();
  CHECK(pair.a.lane->post(works) == 0);
  const auto over = [&] { return pair.a.count(retired) == 1; };
  REQUIRE((seam.retiresAlone ? pumpUntil({&pair.a}, over) : pumpUntil({&pair.a, &pair.b}, over)));
  CHECK(pair.a.seen.back().kind == retired);
  CHECK(pair.a.seen.back().source == pair.a.lane.get());
  const auto times = contextsOf(pair.a);
  CHECK(times.size() == taken);
  for (const auto& [context, n] : times) CHECK(n == 1);
  std::fill(pair.b.bytes.begin(), pair.b.bytes.end(), uint8_t{0});
  pump({&pair.a, &pair.b}, kIdlePolls);
  CHECK(allZero(pair.b.bytes, 0, pair.b.bytes.size()));
  CHECK(pair.a.seen.back().kind == retired);
}

void checkClosing(const SeamUnderTest& seam) {
  for (int order = seam.closesInFlight ? 0 : 2; order < 4; order++) {
    Pair pair(seam);
    const Work works[] = {pair.a.work(Opcode::writeNotify, 0, 0, kMiB, 1),
                          pair.a.work(Opcode::read, 0, 0, 1000, 2)};
    REQUIRE(pair.a.lane->post(works) > 0);
    SeamEnd& first = order % 2 ? pair.a : pair.b;
    SeamEnd& second = order % 2 ? pair.b : pair.a;
    if (order >= 2) {  // fenced before
      first.lane->retire();
      CHECK(pumpUntil({&pair.a, &pair.b}, [&] { return first.count(retired) == 1; }));
    }
    first.lane.reset();
    first.memory.reset();
    first.poll();  // nothing of the lane is left to report
    for (const Completion& completion : first.seen) CHECK(completion.kind != broken);
    first.queue.reset();
    first.device.reset();
    for (int i = 0; i < 100; i++) second.poll();
    second.memory.reset();
    second.lane.reset();
    second.queue.reset();
  }
}

void checkBadAccess(const SeamUnderTest& seam) {
  for (int kind = 0; kind < 4; kind++) {
    const bool badKey = kind >= 2;
    if (!(badKey ? seam.checksKeys : seam.keepsBounds)) continue;
    Pair pair(seam, 65536);
    // Only the middle is registered, so that a write past its end would be seen.
    pair.b.memory.reset();
    auto middle = pair.b.device->registerMemory({.address = pair.b.bytes.data() + 16384, .length = 16384});
    REQUIRE(middle);
    pair.b.memory = middle.take();
    pair.a.importFrom(pair.b);
    Work work = pair.a.work(kind % 2 ? Opcode::write : Opcode::writeNotify, 0, 16384 - 4, 8, 9);
    if (badKey) {
      work.remoteOffset = 0;
      work.remote.key ^= 0x5a5a5a;
    }
    REQUIRE(pair.a.post(work));
    if (seam.reportsBadAccess) {
      CHECK(pumpUntil({&pair.a, &pair.b}, [&] { return pair.a.count(sent, false) == 1; }));
      REQUIRE_FALSE(pair.a.words.empty());
      CHECK_FALSE(pair.a.words.front().empty());
    }
    pump({&pair.a, &pair.b}, kIdlePolls);
    CHECK(allZero(pair.b.bytes, 0, pair.b.bytes.size()));
    CHECK(pair.b.count(notified) == 0);
  }
}

void checkRegistration(const SeamUnderTest& seam) {
  auto transport = seam.make();
  SeamEnd end(*transport, 4096);
  CHECK_FALSE(end.device->registerMemory({}));
  CHECK_FALSE(end.device->registerMemory({.address = nullptr, .length = 4096}));
  CHECK_FALSE(end.device->registerMemory({.address = end.bytes.data(), .length = 0}));
  for (int i = 0; i < 100; i++) {  // the same range again and again, as NCCL does
    const auto again = end.device->registerMemory({.address = end.bytes.data(), .length = 4096});
    REQUIRE(again);
    CHECK_FALSE((*again)->blob().empty());
  }
}

void checkSeam(const SeamUnderTest& seam) {
  INFO(seam.label);
  SECTION("devices") {
    checkDevices(seam);
  }
  SECTION("connecting") {
    checkConnecting(seam);
  }
  SECTION("writes") {
    checkWrites(seam);
  }
  SECTION("notifications") {
    checkNotifications(seam);
  }
  SECTION("reads") {
    checkReads(seam);
  }
  SECTION("messages") {
    checkMessages(seam);
  }
  SECTION("contexts") {
    checkContexts(seam);
  }
  SECTION("unsignaled works") {
    checkUnsignaled(seam);
  }
  SECTION("delivered works") {
    checkDelivered(seam);
  }
  SECTION("depth") {
    checkDepth(seam);
  }
  SECTION("loopback") {
    checkLoopback(seam);
  }
  SECTION("many lanes") {
    checkManyLanes(seam);
  }
  SECTION("retire") {
    checkRetire(seam);
  }
  SECTION("closing") {
    checkClosing(seam);
  }
  SECTION("bad access") {
    checkBadAccess(seam);
  }
  SECTION("registration") {
    checkRegistration(seam);
  }
}

}  // namespace weft::test
