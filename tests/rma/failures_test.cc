// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "providers/fault/control.h"
#include "providers/fault/transport.h"
#include "providers/loop/transport.h"
#include "src/base/random.h"
#include "tests/rma/teams.h"
#include "tests/support/catch.h"
#include "tests/support/patience.h"

// What goes wrong between the ranks of a team: fabrics that swap and lose, ranks that leave or lie. Those
// that die: processes_test.cc.
using namespace weft;
using namespace weft::rma;
using namespace weft::test;

namespace {

// Two ranks over two rails, each rank with faults of its own.
struct Faulty {
  std::vector<std::shared_ptr<fault::FaultControl>> controls{2};
  Teams teams;
  Faulty()
      : teams(2, config(), [this](int rank) -> std::unique_ptr<Transport> {
          loop::LoopOptions options;
          options.rails = 2;
          auto transport = fault::makeTransport(loop::makeTransport(options));
          controls[static_cast<size_t>(rank)] = transport->control();
          return transport;
        }) {}
  static Config config() {
    Config config;
    config.laneTimeout = Milliseconds(300);
    config.railTimeout = Milliseconds(100);
    return config;
  }
};

// Puts of all sizes with signals between two ranks, while `event` happens at a third of them: every byte is
// right when its signal is seen, and no signal is counted twice.
void checkTraffic(Teams& teams, uint64_t seed, const std::function<void()>& event) {
  constexpr uint64_t kPuts = 150;
  constexpr size_t kPart = size_t{1} << 20;
  const size_t source = teams.addWindow(kPart), target = teams.addWindow(kPart * 2);
  const size_t signals = teams.addWindow(16);
  SeededRandom random(seed);
  for (int rank = 0; rank < 2; rank++)
    for (std::byte& byte : teams.bytes(source, rank)) byte = static_cast<std::byte>(random.next());
  std::vector<std::pair<int, Request*>> requests;
  uint64_t sum = 0;
  for (uint64_t i = 0; i < kPuts; i++) {
    if (i == kPuts / 3) event();
    const uint64_t bytes = i % 3 == 0 ? 1 + random.below(kPart - 1) : 1 + random.below(2000);
    for (int from = 0; from < 2; from++) {
      Put put = teams.put(from, 1 - from, source, 0, bytes);
      put.target = teams.window(target, from);
      put.targetOffset = i % 2 * kPart;
      put = withSignal(put, teams.window(signals, from), 8, i + 1);
      requests.emplace_back(from, begun(teams.team(from).put(put)));
    }
    sum += i + 1;
    REQUIRE(
        teams.until([&] { return teams.word(signals, 0, 8) == sum && teams.word(signals, 1, 8) == sum; }));
    for (int to = 0; to < 2; to++)
      REQUIRE(std::memcmp(teams.bytes(target, to).data() + i % 2 * kPart, teams.bytes(source, 1 - to).data(),
                          bytes) == 0);
  }
  for (int rank = 0; rank < 2; rank++) CHECK(teams.team(rank).counters().placed > 0);
  for (const auto& [rank, request] : requests) teams.finish(rank, request);
  for (int pass = 0; pass < 1000; pass++)
    for (int rank = 0; rank < 2; rank++) REQUIRE(teams.team(rank).progress());
  for (int rank = 0; rank < 2; rank++) CHECK(teams.word(signals, rank, 8) == sum);
}

fault::FaultRule rule(fault::FaultKind kind, double probability, uint32_t window) {
  fault::FaultRule made;
  made.kind = kind;
  made.probability = probability;
  made.window = window;
  return made;
}

}  // namespace

TEST_CASE("one-sided: a fabric that swaps and delays changes no result") {
  Faulty faulty;
  for (const auto& control : faulty.controls) {
    control->add(rule(fault::FaultKind::reorder, 0.2, 5));
    control->add(rule(fault::FaultKind::delay, 0.1, 1));
  }
  checkTraffic(faulty.teams, 3, [] {});
}

TEST_CASE("one-sided: a rail that dies costs no put, and counts no signal twice") {
  for (const auto kind : {fault::FaultKind::kill, fault::FaultKind::killLate, fault::FaultKind::killSilent}) {
    INFO(fault::faultName(kind));
    Faulty faulty;
    checkTraffic(faulty.teams, 4, [&] {
      fault::FaultRule dies;
      dies.kind = kind;
      dies.rail = 1;
      dies.count = 1;
      faulty.controls[0]->add(dies);
    });
  }
}

TEST_CASE("one-sided: a rank that leaves is not waited for, and is named to whoever reaches for it") {
  Teams teams(3);
  const size_t data = teams.addWindow(4096);
  std::atomic<bool> gone{false};
  std::thread leaving([&] {
    teams.team(2).close();
    gone = true;
  });
  std::string refused;
  CHECK(teams.until([&] {
    auto put = teams.team(0).put(teams.put(0, 2, data, 0, 8));
    refused = put ? "" : put.error().message();
    return !put;
  }));
  CHECK(refused.find("rank 2 has closed its end") != std::string::npos);
  // The two others go on.
  teams.finish(0,
               begun(teams.team(0).put(withSignal(teams.put(0, 1, data, 0, 8), teams.window(data, 0), 64))));
  CHECK(teams.until([&] { return teams.word(data, 1, 64) == 1; }));
  CHECK(teams.until([&] { return gone.load(); }));
  leaving.join();
  for (const int rank : {0, 1}) CHECK(teams.team(rank).progress());
}

TEST_CASE("one-sided: a close with work in flight lets the work land") {
  Teams teams(2);
  const size_t bytes = size_t{20} << 20;
  const size_t data = teams.addWindow(bytes), signals = teams.addWindow(8);
  for (std::byte& byte : teams.bytes(data, 0)) byte = std::byte{7};
  (void)begun(teams.team(0).put(withSignal(teams.put(0, 1, data, 0, bytes), teams.window(signals, 0), 0)));
  std::thread closing([&] { teams.team(0).close(); });
  const bool came = teams.until([&] { return teams.word(signals, 1, 0) == 1; });
  teams.team(1).close();
  closing.join();
  CHECK(came);
  CHECK(teams.bytes(data, 1)[bytes - 1] == std::byte{7});
}

TEST_CASE("one-sided: a close beside a rank that does not come to its own ends in its time") {
  Config config;
  config.closeTimeout = Milliseconds(200);
  Teams teams(2, config);
  const size_t data = teams.addWindow(size_t{20} << 20);
  (void)begun(teams.team(0).put(teams.put(0, 1, data, 0, size_t{20} << 20)));
  const auto begin = std::chrono::steady_clock::now();
  teams.team(0).close();
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5 * patience()));
}

TEST_CASE("one-sided: memory that a rank cannot register is told to all ranks, with its number") {
  Teams teams(3);
  std::vector<std::string> failures(3);
  std::vector<std::byte> bytes(3 * 64);
  teams.ranks().each([&](int rank) {
    MemoryDesc desc;
    desc.address = bytes.data() + rank * 64;
    desc.length = 64;
    Result<MemoryDesc> mine = desc;
    if (rank == 1) mine = Error(Code::invalidArgument, "a test", "no such memory");
    auto made = teams.team(rank).registerMemory(mine, false);
    if (!made) failures[static_cast<size_t>(rank)] = made.error().message();
  });
  CHECK(failures[1].find("no such memory") != std::string::npos);
  for (const size_t rank : {0, 2})
    CHECK(failures[rank].find("rank 1 could not register its memory") != std::string::npos);
  // The next registration works.
  const size_t data = teams.addWindow(64);
  teams.finish(0, begun(teams.team(0).put(teams.put(0, 2, data, 0, 8))));
}

TEST_CASE("one-sided: a put into a window that was given up goes nowhere, and its signal comes") {
  Teams teams(2);
  const size_t data = teams.addWindow(size_t{5} << 20), signals = teams.addWindow(8);
  for (std::byte& byte : teams.bytes(data, 0)) byte = std::byte{9};
  REQUIRE(teams.team(1).deregisterMemory(teams.window(data, 1)));
  for (const uint64_t bytes : {uint64_t{8}, uint64_t{5} << 20}) {
    Request* request =
        begun(teams.team(0).put(withSignal(teams.put(0, 1, data, 0, bytes), teams.window(signals, 0), 0)));
    teams.finish(0, request);
  }
  CHECK(teams.until([&] { return teams.word(signals, 1, 0) == 2; }));
  CHECK(teams.bytes(data, 1)[0] == std::byte{0});
}

namespace {

// Puts from rank 0 to rank 1 until the fabric writes them there.
void placeFirst(Teams& teams, size_t data, size_t signals) {
  for (uint64_t puts = 1; teams.team(0).counters().placed == 0; puts++) {
    REQUIRE(puts < 5000);
    teams.finish(
        0, begun(teams.team(0).put(withSignal(teams.put(0, 1, data, 0, 4096), teams.window(signals, 0), 0))));
    REQUIRE(teams.until([&] { return teams.word(signals, 1, 0) == puts; }));
  }
}

}  // namespace

// More puts than can be under way: some land before the window is given up, and the others go nowhere.
TEST_CASE("one-sided: the fabric writes no more into a window that was given up, and every signal comes") {
  for (const uint64_t bytes : {uint64_t{4096}, uint64_t{9} << 20}) {
    INFO(bytes);
    Teams teams(2);
    const size_t data = teams.addWindow(size_t{9} << 20), signals = teams.addWindow(8);
    placeFirst(teams, data, signals);
    const uint64_t before = teams.word(signals, 1, 0);
    for (std::byte& byte : teams.bytes(data, 0)) byte = std::byte{9};
    std::vector<Request*> requests;
    for (int i = 0; i < 40; i++)
      requests.push_back(
          begun(teams.team(0).put(withSignal(teams.put(0, 1, data, 0, bytes), teams.window(signals, 0), 0))));
    REQUIRE(teams.team(0).counters().placed >= 40);
    std::atomic<bool> gone{false};
    std::thread leaving([&] {
      CHECK(teams.team(1).deregisterMemory(teams.window(data, 1)));
      for (std::byte& byte : teams.bytes(data, 1)) byte = std::byte{5};
      gone = true;
    });
    CHECK(teams.until([&] { return gone.load(); }));
    leaving.join();
    for (Request* request : requests) teams.finish(0, request);
    teams.finish(
        0,
        begun(teams.team(0).put(withSignal(teams.put(0, 1, data, 0, bytes), teams.window(signals, 0), 0))));
    CHECK(teams.until([&] { return teams.word(signals, 1, 0) == before + 41; }));
    const auto untouched = [](std::byte byte) { return byte == std::byte{5}; };
    CHECK(std::all_of(teams.bytes(data, 1).begin(), teams.bytes(data, 1).end(), untouched));
    for (const int rank : {0, 1}) CHECK(teams.team(rank).progress());
  }
}

namespace {

// Calls progress() of some ranks for as long as it lives.
struct Progress {
  std::atomic<bool> over{false};
  std::vector<std::string> failures;
  std::thread thread;

  Progress(Teams& teams, const std::vector<int>& ranks)
      : failures(static_cast<size_t>(teams.count())), thread([this, &teams, ranks] {
          while (!over)
            for (const int rank : ranks) {
              const Status moved = teams.team(rank).progress();
              if (!moved) failures[static_cast<size_t>(rank)] = moved.error().message();
            }
        }) {}
  ~Progress() { end(); }
  void end() {
    over = true;
    if (thread.joinable()) thread.join();
  }
};

// Rank 1 has asked rank 0 for bytes, and rank 0 does not come to answering.
Config hasty() {
  Config config;
  config.closeTimeout = Milliseconds(600);
  return config;
}
void getFromIdle(Teams& teams, size_t window) {
  Get get;
  get.rank = 0;
  get.bytes = size_t{1} << 20;
  get.remote = get.local = teams.window(window, 1);
  (void)begun(teams.team(1).get(get));
}

}  // namespace

TEST_CASE("one-sided: a window that one rank keeps busy costs the connection with that rank alone") {
  Teams teams(3, hasty());
  const size_t busy = teams.addWindow(size_t{1} << 20), signals = teams.addWindow(64);
  getFromIdle(teams, busy);
  Progress others(teams, {1, 2});
  CHECK(teams.team(1).deregisterMemory(teams.window(busy, 1)));
  others.end();
  CHECK(others.failures[2] == "");
  // The rank in question hears why, and the third one is reached as before.
  std::string heard;
  CHECK(teams.until([&] {
    if (const Status moved = teams.team(0).progress(); !moved) heard = moved.error().message();
    return !heard.empty();
  }));
  INFO(heard);
  CHECK(heard.find("rank 1 gave up: window 0 was given up while rank 1 and rank 0 moved bytes of it") !=
        std::string::npos);
  Put put;
  put.rank = 2;
  auto signal = teams.team(1).put(withSignal(put, teams.window(signals, 1), 8));
  REQUIRE(signal);
  CHECK(teams.until([&] { return teams.word(signals, 2, 8) == 1; }));
}

namespace {

// Rank 1 is not a team but a liar, which sends heads as it likes.
struct Liar {
  Ranks ranks{2};
  std::unique_ptr<Team> team;
  std::unique_ptr<coll::Mesh> mesh;
  std::vector<std::byte> bytes = std::vector<std::byte>(4096, std::byte{5});
  coll::Staging slot;
  core::MemoryHandle* memory = nullptr;
  uint64_t sequence = 0;

  Liar() {
    ranks.each([&](int rank) {
      if (rank == 0) {
        if (auto made = Team::open(ranks.meshOptions(0))) team = made.take();
      } else if (auto made = coll::Mesh::open(ranks.meshOptions(1))) {
        mesh = made.take();
      }
    });
    REQUIRE((team && mesh));
    auto made = coll::Staging::create(kSlotBytes);
    REQUIRE(made);
    slot = made.take();
    auto handle = slot.registerOn(comm());
    REQUIRE(handle);
    memory = *handle;
    std::thread registering([&] {
      MemoryDesc desc;
      desc.address = bytes.data();
      desc.length = bytes.size();
      CHECK(team->registerMemory(desc, false));
    });
    Head head;
    head.kind = Kind::exchange;
    head.offset = 1;
    head.bytes = 1;
    const Descriptor mine{4096, 1, 1, 0, {}};
    send(head, std::as_bytes(std::span(&mine, 1)));
    registering.join();
  }
  core::SendComm& comm() { return mesh->pipe(0)->sending(); }
  void send(Head head, std::span<const std::byte> behind = {}) {
    head.sequence = sequence++;
    head.inlined = static_cast<uint16_t>(behind.size());
    sendRaw(std::as_bytes(std::span(&head, 1)), behind);
  }
  void sendRaw(std::span<const std::byte> head, std::span<const std::byte> behind = {}) {
    std::memcpy(slot.data(), head.data(), head.size());
    if (!behind.empty()) std::memcpy(slot.data() + head.size(), behind.data(), behind.size());
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10 * patience());
    core::Posted posted;
    while (!posted.request) {
      posted = comm().isend(slot.data(), head.size() + behind.size(), kHeadTag, memory, nullptr);
      REQUIRE(posted.ok);
      REQUIRE(std::chrono::steady_clock::now() < limit);
    }
    while (!core::test(posted.request, nullptr).done) REQUIRE(std::chrono::steady_clock::now() < limit);
  }
  // The bytes of a put whose head was sent.
  void sendBytes(size_t size) {
    auto made = coll::Staging::create(size);
    REQUIRE(made);
    auto handle = made->registerOn(comm());
    REQUIRE(handle);
    std::fill(made->data(), made->data() + size, std::byte{3});
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10 * patience());
    core::Posted posted;
    for (bool done = false; !done;) {
      if (!posted.request) posted = comm().isend(made->data(), size, kPutTag, *handle, nullptr);
      REQUIRE(posted.ok);
      if (posted.request) done = core::test(posted.request, nullptr).done;
      REQUIRE(std::chrono::steady_clock::now() < limit);
    }
  }
  // The team's failure.
  std::string heard() {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10 * patience());
    while (std::chrono::steady_clock::now() < limit)
      if (const Status moved = team->progress(); !moved) return moved.error().message();
    return "";
  }
};

}  // namespace

namespace {

// A head that is changed, with eight bytes behind it, and what is said of it.
struct Lie {
  void (*change)(Head& head);
  const char* expected;
  bool inlined = true;
  uint64_t skipped = 0;  // heads that seem to be lost before it
};

const Lie kLies[] = {
    {[](Head& head) { head.offset = 4089; },
     "a put of 8 bytes from 4089 on, in window 0, of which rank 0 has 4096 bytes"},
    {[](Head& head) { head.offset = ~uint64_t{0} - 3; }, "a put of 8 bytes from 18446744073709551612 on"},
    {[](Head& head) { head.window = 1; }, "a put into window 1, which there is not"},
    {[](Head& head) { head.bytes = 16; }, "a put of another size than it says"},
    {[](Head& head) { head.signals = 1, head.signalOffset = 4092; }, "a signal of 8 bytes from 4092 on"},
    {[](Head& head) { head.signals = 1, head.signalWindow = 7; },
     "a signal into window 7, which there is not"},
    {[](Head& head) { head.kind = Kind::get, head.bytes = 5000; }, "a get of 5000 bytes from 0 on", false},
    {[](Head&) {}, "message 2 came where 1 was due", true, 1},
    {[](Head& head) { head.kind = static_cast<Kind>(77); }, "a message that is none of these operations"},
    {[](Head& head) { head.piece = 1000; }, "a message that is none of these operations"},
    {[](Head& head) { head.placed = 2; }, "a message that is none of these operations"},
    {[](Head& head) { head.placed = 1; }, "bytes for a window that was not opened to it", false},
    {[](Head& head) { head.kind = Kind::exchange, head.window = 9; }, "what rank 1 sent belongs to window 9"},
};

}  // namespace

TEST_CASE("one-sided: a rank that names what it may not reach is refused, and nothing is written") {
  for (const Lie& lie : kLies) {
    Liar liar;
    Head head;
    head.bytes = 8;
    lie.change(head);
    liar.sequence += lie.skipped;
    const std::byte eight[8] = {};
    liar.send(head, lie.inlined ? std::span<const std::byte>(eight) : std::span<const std::byte>());
    const std::string heard = liar.heard();
    INFO(heard);
    CHECK(heard.find(lie.expected) != std::string::npos);
    CHECK(heard.find("rank 1") != std::string::npos);
    CHECK(liar.team->failed());
    // The bytes of a put whose signal is refused are not there either: the whole head is checked first.
    const auto untouched = [](std::byte byte) { return byte == std::byte{5}; };
    CHECK(std::all_of(liar.bytes.begin(), liar.bytes.end(), untouched));
  }
}

// A rank that has heard of all others puts into a window at once. Here the registration has failed meanwhile,
// and the bytes of the put come only then.
TEST_CASE("one-sided: a registration that fails waits for what came into its window") {
  Liar liar;
  std::vector<std::byte> second(size_t{1} << 20);
  std::string failure;
  std::thread registering([&] {
    MemoryDesc desc;
    desc.address = second.data();
    desc.length = second.size();
    const auto made = liar.team->registerMemory(desc, false);
    if (!made) failure = made.error().message();
  });
  Head put;
  put.window = 1;
  put.bytes = second.size();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the window has its number
  liar.send(put);
  Head exchange;
  exchange.kind = Kind::exchange;
  exchange.window = 1;
  exchange.offset = 1;
  exchange.bytes = 1;
  const Descriptor refused{};
  liar.send(exchange, std::as_bytes(std::span(&refused, 1)));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  liar.sendBytes(second.size());
  registering.join();
  INFO(failure);
  CHECK(failure.find("rank 1 could not register its memory") != std::string::npos);
  CHECK(std::all_of(second.begin(), second.end(), [](std::byte byte) { return byte == std::byte{3}; }));
  CHECK(liar.team->progress());
  CHECK_FALSE(liar.team->failed());
}

TEST_CASE("one-sided: a rank that says why it goes is quoted") {
  Liar liar;
  Head head;
  head.kind = Kind::alarm;
  const std::string why = "its card burns";
  liar.send(head, std::as_bytes(std::span(why.data(), why.size())));
  CHECK(liar.heard().find("rank 1 gave up: its card burns") != std::string::npos);
}
