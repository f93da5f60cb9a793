// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstring>

#include "providers/loop/transport.h"
#include "providers/tcp/transport.h"
#include "src/base/random.h"
#include "tests/rma/teams.h"
#include "tests/support/catch.h"

// Puts, gets and signals between the ranks of a team, over fabrics that need no card.
using namespace weft;
using namespace weft::rma;
using namespace weft::test;

namespace {

Ranks::MakeTransport fabric(const std::string& name) {
  if (name != "tcp") return [](int) { return loop::makeTransport({}); };
  return [](int) {
    Config config;
    config.socketIfname = "=lo";
    return tcp::makeTransport(config);
  };
}

void fill(std::vector<std::byte>& bytes, uint64_t seed) {
  SeededRandom random(seed);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
}

// The bytes of [offset, +bytes) in a rank's window are those of another rank's.
bool same(Teams& teams, size_t window, int one, int other, size_t offset, size_t bytes) {
  return std::memcmp(teams.bytes(window, one).data() + offset, teams.bytes(window, other).data() + offset,
                     bytes) == 0;
}

constexpr size_t kBytes = size_t{10} << 20;
constexpr uint64_t kSizes[] = {1, 8, 192, 193, 4096, 65'536, 1'000'003, size_t{9} << 20};

}  // namespace

TEST_CASE("one-sided: puts of every size land, and the signal is seen after them") {
  for (const char* name : {"loop", "tcp"}) {
    INFO(name);
    Teams teams(2, {}, fabric(name));
    const size_t data = teams.addWindow(kBytes), signals = teams.addWindow(64);
    fill(teams.bytes(data, 0), 1);
    uint64_t expected = 0;
    for (const uint64_t bytes : kSizes) {
      INFO(bytes << " bytes");
      std::memset(teams.bytes(data, 1).data(), 0, kBytes);
      Request* request = begun(
          teams.team(0).put(withSignal(teams.put(0, 1, data, 4099, bytes), teams.window(signals, 0), 8, 3)));
      expected += 3;
      REQUIRE(teams.until([&] { return teams.word(signals, 1, 8) == expected; }));
      CHECK(same(teams, data, 0, 1, 4099, bytes));
      CHECK(teams.bytes(data, 1)[4098] == std::byte{0});
      CHECK(teams.bytes(data, 1)[4099 + bytes] == std::byte{0});
      teams.finish(0, request);
    }
    CHECK(teams.word(signals, 1, 0) == 0);
    CHECK(teams.word(signals, 1, 16) == 0);
  }
}

TEST_CASE("one-sided: the fabric writes into a window once a put has come to it, where that costs no more") {
  for (const char* name : {"loop", "tcp"}) {
    INFO(name);
    Teams teams(2, {}, fabric(name));
    const size_t data = teams.addWindow(kBytes), signals = teams.addWindow(64);
    const bool places = std::string(name) != "tcp";
    uint64_t puts = 0;
    const auto putAndWait = [&] {
      puts++;
      std::memset(teams.bytes(data, 0).data() + 4099, static_cast<int>(puts), size_t{9} << 20);
      const uint64_t bytes = places && puts % 16 == 0 ? size_t{9} << 20 : kSizes[4 + puts % 2];
      Request* request = begun(
          teams.team(0).put(withSignal(teams.put(0, 1, data, 4099, bytes), teams.window(signals, 0), 8)));
      REQUIRE(teams.until([&] { return teams.word(signals, 1, 8) == puts; }));
      CHECK(same(teams, data, 0, 1, 4099, bytes));
      teams.finish(0, request);
    };
    // The other rank is told by its control link, which takes its time.
    putAndWait();
    CHECK(teams.team(0).counters().placed == 0);
    while (puts < (places ? 2000 : 50) && teams.team(0).counters().placed == 0) putAndWait();
    if (!places) {
      CHECK(teams.team(0).counters().placed == 0);
      continue;
    }
    const uint64_t before = teams.team(0).counters().placed;
    REQUIRE(before > 0);
    for (int more = 0; more < 100; more++) putAndWait();
    CHECK(teams.team(0).counters().placed >= before + 50);  // not where the engine was in use just then
    CHECK(teams.team(1).counters().placed == 0);
  }
}

TEST_CASE("one-sided: a put of nothing, and a signal alone, with null handles") {
  Teams teams(2);
  const size_t signals = teams.addWindow(64);
  Put nothing;
  nothing.rank = 1;
  teams.finish(0, begun(teams.team(0).put(nothing)));
  teams.finish(0, begun(teams.team(0).put(withSignal(nothing, teams.window(signals, 0), 56, 1))));
  REQUIRE(teams.until([&] { return teams.word(signals, 1, 56) == 1; }));
}

TEST_CASE("one-sided: gets of every size bring what the other rank has") {
  for (const char* name : {"loop", "tcp"}) {
    INFO(name);
    Teams teams(3, {}, fabric(name));
    const size_t data = teams.addWindow(kBytes);
    fill(teams.bytes(data, 2), 5);
    for (const uint64_t bytes : kSizes) {
      INFO(bytes << " bytes");
      std::memset(teams.bytes(data, 0).data(), 0, kBytes);
      Get get;
      get.rank = 2;
      get.bytes = bytes;
      get.remote = get.local = teams.window(data, 0);
      get.remoteOffset = get.localOffset = 77;
      teams.finish(0, begun(teams.team(0).get(get)));
      CHECK(same(teams, data, 0, 2, 77, bytes));
    }
  }
}

TEST_CASE("one-sided: a rank reaches itself, and a test alone ends that") {
  Teams teams(2);
  const size_t data = teams.addWindow(4096);
  fill(teams.bytes(data, 0), 3);
  Put put = withSignal(teams.put(0, 0, data, 0, 64), teams.window(data, 0), 2048, 7);
  put.targetOffset = 1024;
  const uint64_t before = teams.word(data, 0, 2048);
  Request* request = begun(teams.team(0).put(put));
  bool done = false;
  REQUIRE(teams.team(0).test(request, &done));
  CHECK(done);
  CHECK(std::memcmp(teams.bytes(data, 0).data(), teams.bytes(data, 0).data() + 1024, 64) == 0);
  CHECK(teams.word(data, 0, 2048) == before + 7);
}

// Every rank counts up a number in its own part of each other rank's window, a signal behind each: whoever
// has seen n signals has the n-th number or a later one.
TEST_CASE("one-sided: no signal is seen before its own put or before earlier ones") {
  for (const char* name : {"loop", "tcp"}) {
    INFO(name);
    constexpr int kRanks = 4;
    constexpr uint64_t kRounds = 200;
    Teams teams(kRanks, {}, fabric(name));
    constexpr size_t kPart = 200'000;
    const size_t data = teams.addWindow(kPart * kRanks * 2), signals = teams.addWindow(kRanks * 8);
    SeededRandom random(11);
    std::vector<std::vector<std::pair<Request*, uint64_t>>> requests(kRanks);
    std::vector<std::vector<uint64_t>> sent(kRanks, std::vector<uint64_t>(kRanks));
    const auto check = [&] {
      for (int to = 0; to < kRanks; to++)
        for (int from = 0; from < kRanks; from++) {
          const uint64_t seen = teams.word(signals, to, static_cast<size_t>(from) * 8);
          REQUIRE(seen <= sent[static_cast<size_t>(from)][static_cast<size_t>(to)]);
          if (seen == 0) continue;
          uint64_t number = 0;
          const size_t slot = (static_cast<size_t>(from) * 2 + seen % 2) * kPart + seen % 7 * 24'000;
          std::memcpy(&number, teams.bytes(data, to).data() + slot, sizeof number);
          REQUIRE(number >= seen);
        }
    };
    for (uint64_t round = 1; round <= kRounds; round++) {
      for (int from = 0; from < kRanks; from++)
        for (int to = 0; to < kRanks; to++) {
          const uint64_t bytes = 8 + random.below(round % 5 == 0 ? 20'000 : 300);
          const size_t slot = (static_cast<size_t>(from) * 2 + round % 2) * kPart + round % 7 * 24'000;
          // The source is not used again before this put is done: another slot each time for fourteen rounds.
          std::memcpy(teams.bytes(data, from).data() + slot, &round, sizeof round);
          Put put = teams.put(from, to, data, slot, bytes);
          put.context = static_cast<uint32_t>(round % 3);
          put = withSignal(put, teams.window(signals, from), static_cast<uint64_t>(from) * 8);
          requests[static_cast<size_t>(from)].emplace_back(begun(teams.team(from).put(put)), round);
          sent[static_cast<size_t>(from)][static_cast<size_t>(to)]++;
        }
      if (round % 7 == 0) {
        REQUIRE(teams.until([&] {
          check();
          for (int from = 0; from < kRanks; from++)
            for (int to = 0; to < kRanks; to++)
              if (teams.word(signals, to, static_cast<size_t>(from) * 8) < round) return false;
          return true;
        }));
      } else {
        for (int rank = 0; rank < kRanks; rank++) REQUIRE(teams.team(rank).progress());
        check();
      }
    }
    REQUIRE(teams.until([&] {
      check();
      for (int from = 0; from < kRanks; from++)
        for (int to = 0; to < kRanks; to++)
          if (teams.word(signals, to, static_cast<size_t>(from) * 8) < kRounds) return false;
      return true;
    }));
    for (int rank = 0; rank < kRanks; rank++)
      for (const auto& [request, round] : requests[static_cast<size_t>(rank)]) teams.finish(rank, request);
  }
}

TEST_CASE("one-sided: the state of a process has windows, and what waits for which rank") {
  Teams teams(2);
  const size_t data = teams.addWindow(size_t{8} << 20);
  Request* request = begun(teams.team(0).put(teams.put(0, 1, data, 0, size_t{8} << 20)));
  const auto runtime = teams.ranks().context(0)->net().runtime();
  REQUIRE(runtime);
  const std::string waiting = (*runtime)->stateText();
  INFO(waiting);
  CHECK(waiting.find("one-sided operations, rank 0 of 2: 1 windows; 1 puts and 0 gets were begun here, 1 of "
                     "them are under way") != std::string::npos);
  CHECK(waiting.find("window 0: 8388608 bytes of the host, in use by 1 operations") != std::string::npos);
  CHECK(waiting.find("  rank 1: ") != std::string::npos);
  teams.finish(0, request);
  REQUIRE(teams.until([&] { return (*runtime)->stateText().find("  rank 1: ") == std::string::npos; }));
}

TEST_CASE("one-sided: each connection counts what went and what came, in the direction of its bytes") {
  Teams teams(3);
  const size_t data = teams.addWindow(100'000), signals = teams.addWindow(64);
  const auto put = [&](int to, uint64_t bytes) {
    return withSignal(teams.put(0, to, data, 0, bytes), teams.window(signals, 0), 0);
  };
  for (const uint64_t bytes : {uint64_t{8}, uint64_t{70'000}})
    teams.finish(0, begun(teams.team(0).put(put(1, bytes))));
  teams.finish(0, begun(teams.team(0).put(put(2, 0))));
  Get get;
  get.rank = 1;
  get.bytes = 90'000;
  get.remote = get.local = teams.window(data, 0);
  teams.finish(0, begun(teams.team(0).get(get)));
  REQUIRE(teams.until([&] { return teams.word(signals, 1, 0) == 2 && teams.word(signals, 2, 0) == 1; }));
  const auto is = [](const stats::OneSidedSum& sum, const stats::OneSidedSum& expected) {
    return sum.puts == expected.puts && sum.putBytes == expected.putBytes && sum.gets == expected.gets &&
           sum.getBytes == expected.getBytes && sum.signals == expected.signals;
  };
  CHECK(is(teams.team(0).sentTo(1), {2, 70'008, 0, 0, 2}));
  CHECK(is(teams.team(1).receivedFrom(0), {2, 70'008, 0, 0, 2}));
  CHECK(is(teams.team(1).sentTo(0), {0, 0, 1, 90'000, 0}));
  CHECK(is(teams.team(0).receivedFrom(1), {0, 0, 1, 90'000, 0}));
  CHECK(is(teams.team(0).sentTo(2), {0, 0, 0, 0, 1}));
  CHECK(is(teams.team(2).receivedFrom(0), {0, 0, 0, 0, 1}));
  CHECK_FALSE(teams.team(1).sentTo(2).any());
}
