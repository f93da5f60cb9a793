// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <fstream>
#include <sys/socket.h>
#include <thread>

#include "providers/loop/transport.h"
#include "src/coll/ring.h"
#include "tests/coll/scenarios.h"
#include "tests/coll/tree_of_daemons.h"
#include "tests/support/catch.h"
#include "tests/support/patience.h"

// An aggregation daemon by itself: where it listens, and that members of one group cannot harm another.
using namespace weft;
using namespace weft::coll;
using namespace weft::test;

namespace {

bool canDial(const std::string& host, uint16_t port) {
  Patience shortly(Clock::system(), Milliseconds(2000 * patience()));
  return static_cast<bool>(dialDaemon(host + ":" + std::to_string(port), shortly));
}

Result<std::unique_ptr<agg::Daemon>> startWith(const std::string& secret, const std::string& listen) {
  agg::DaemonOptions options = daemonOptions();
  options.secret = secret;
  options.listen = listen;
  return agg::Daemon::start(std::move(options));
}

// Time as everybody else's, until it is held: whoever asks it then stands still until it goes on. A network
// under a held clock is one whose process is stopped: its control thread answers nothing.
class HeldClock : public Clock {
 public:
  TimePoint now() const override {
    while (held_.load()) Clock::sleep(Milliseconds(1));
    return Clock::now();
  }
  void hold(bool held) { held_ = held; }

 private:
  std::atomic<bool> held_{false};
};

// A rank of a group of its own that sends an operation, reads no result, and then nonsense, after which its
// process stands still: the daemon's end of its way over the fabric has receives posted that nobody gives
// back, and takes the whole WEFT_CLOSE_TIMEOUT to close.
class DeafRank {
 public:
  explicit DeafRank(const agg::Daemon& daemon) {
    core::NetOptions options;
    options.transport = loop::makeTransport({});
    options.clock = &clock_;
    auto net = core::Net::create(std::move(options));
    REQUIRE(net);
    core::ContextOptions context;
    context.perCommunicator = true;
    JoinOptions join;
    join.context = (*net)->openContext(std::move(context));
    join.daemon = "127.0.0.1:" + std::to_string(daemon.port());
    join.secret = kTestSecret;
    join.request.group = 4711;
    join.request.ranks = 1;
    join.request.chunkBytes = kTestChunk;
    join.request.name = "the deaf rank";
    auto joined = joinDaemon(std::move(join));
    REQUIRE(joined);
    membership_ = joined.take();
    auto staging = Staging::create(kOperationHeadBytes + 4);
    REQUIRE(staging);
    message_ = staging.take();
    auto handle = message_.registerOn(membership_.pipe->sending());
    REQUIRE(handle);
    memory_ = *handle;
  }
  ~DeafRank() { clock_.hold(false); }

  void sendOperation() {
    OperationHead head;
    head.kind = OperationKind::allReduce;
    head.type = ElementType::f32;
    head.op = ReduceOp::sum;
    head.bytes = 4;
    send(head.encode(), kHeadTag);
    send(Bytes(4), contributionTag(0));
  }

  void announce(uint64_t sequence, uint64_t bytes) {
    OperationHead head;
    head.sequence = sequence;
    head.type = ElementType::f32;
    head.bytes = bytes;
    send(head.encode(), kHeadTag);
  }

  // The daemon ends its group for it, and closes the connection with a process that answers nothing.
  void sendNonsenseAndStandStill() {
    send(Bytes(kOperationHeadBytes, std::byte{7}), kHeadTag);
    clock_.hold(true);
  }

 private:
  void send(const Bytes& bytes, int tag) {
    std::memcpy(message_.data(), bytes.data(), bytes.size());
    Patience patience(Clock::system(), Milliseconds(10000 * test::patience()));
    core::Posted posted;
    while (!posted.request && !patience.over()) {
      posted = membership_.pipe->sending().isend(message_.data(), bytes.size(), tag, memory_, nullptr);
      REQUIRE(posted.ok);
      patience.pause();
    }
    while (!core::test(posted.request, nullptr).done && !patience.over()) patience.pause();
    REQUIRE_FALSE(patience.over());
  }

  HeldClock clock_;  // outlives the network, which the membership keeps
  Membership membership_;
  Staging message_;
  core::MemoryHandle* memory_ = nullptr;
};

// The first message of a rank that was about to join.
Bytes overheard() {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
  const Fd there(ends[1]);
  CHECK_FALSE(meetDaemon(Fd(ends[0]), joinKeyOf({}, kTestSecret), {Clock::system(), Milliseconds(1)}));
  ExactReader reader;
  reader.expect(kOpeningBytes);
  REQUIRE(reader.fill(there.get()).io == Io::ok);
  return Bytes(reader.bytes().begin(), reader.bytes().end());
}

// Waits for something that other threads do.
template <class Condition>
bool soon(Condition condition) {
  Patience patience(Clock::system(), Milliseconds(20000 * test::patience()));
  while (!condition() && !patience.over()) patience.pause();
  return condition();
}

const agg::GroupReport* reportOf(const std::vector<agg::GroupReport>& reports, uint64_t id) {
  for (const agg::GroupReport& report : reports)
    if (report.id == id) return &report;
  return nullptr;
}

}  // namespace

// 127.0.0.2 stands for the addresses by which other hosts come: a socket of 127.0.0.1 alone does not hear it.
TEST_CASE("daemon: without a secret it listens on the loopback address alone") {
  const auto open = startWith("", "");
  REQUIRE(open);
  CHECK((*open)->isOpenToThisHostOnly());
  CHECK(canDial("127.0.0.1", (*open)->port()));
  CHECK_FALSE(canDial("127.0.0.2", (*open)->port()));
  const auto guarded = startWith(kTestSecret, "");
  REQUIRE(guarded);
  CHECK_FALSE((*guarded)->isOpenToThisHostOnly());
  CHECK(canDial("127.0.0.2", (*guarded)->port()));
}

TEST_CASE("daemon: an address that other hosts reach wants a secret") {
  for (const char* listen : {"0.0.0.0:0", "[::]:0", ":0"}) {
    INFO(listen);
    const auto refused = startWith("", listen);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code() == Code::config);
    CHECK(refused.error().message().find("WEFT_AGGD_SECRET") != std::string::npos);
  }
  CHECK(startWith("", "127.0.0.1:0"));
  CHECK(startWith(kTestSecret, "0.0.0.0:0"));
}

TEST_CASE("daemon: a secret that could be guessed is refused, at the daemon and at the rank") {
  const auto started = startWith("fifteen letters", "");
  REQUIRE_FALSE(started);
  CHECK(started.error().code() == Code::config);
  CHECK(started.error().message().find("has 15 bytes, and 16 are the fewest") != std::string::npos);
  CHECK(startWith("sixteen letters!", ""));
  const auto daemon = startWith(kTestSecret, "");
  REQUIRE(daemon);
  const auto said = askStatus({.daemon = "127.0.0.1:" + std::to_string((*daemon)->port()), .secret = "brief"},
                              Clock::system());
  REQUIRE_FALSE(said);
  CHECK(said.error().message().find("has 5 bytes") != std::string::npos);
}

TEST_CASE("daemon: who has another secret is told so at once, with the daemon's address and the settings") {
  const auto daemon = startWith(kTestSecret, "");
  REQUIRE(daemon);
  StatusQuestion question{"127.0.0.1:" + std::to_string((*daemon)->port()), kTestSecret};
  question.timeout = Milliseconds(20'000 * patience());
  CHECK(askStatus(question, Clock::system()));
  const auto refused = [&] {
    const auto before = std::chrono::steady_clock::now();
    const auto said = askStatus(question, Clock::system());
    REQUIRE_FALSE(said);
    CHECK(std::chrono::steady_clock::now() - before < std::chrono::seconds(5) * patience());
    CHECK(said.error().code() == Code::config);
    for (const char* word : {question.daemon.c_str(), "WEFT_AGGD_SECRET", "WEFT_SECRET,"})
      CHECK(said.error().message().find(word) != std::string::npos);
  };
  question.secret = "open barley, says the rank";
  refused();
  question.secret = kTestSecret;
  question.protection.jobSecret.emplace().fill(std::byte{1});  // which the daemon does not have
  refused();
}

// A rank of a version in which the daemon spoke first says nothing until it is greeted.
TEST_CASE("daemon: a guest that says nothing is told the daemon's version in the end") {
  const auto daemon = startWith(kTestSecret, "");
  REQUIRE(daemon);
  const Patience within(Clock::system(), Milliseconds(20'000 * patience()));
  const auto mute = dialDaemon("127.0.0.1:" + std::to_string((*daemon)->port()), within);
  REQUIRE(mute);
  ExactReader reader;
  reader.expect(refusal().size());
  REQUIRE(receiveAll(mute->get(), reader, within.deadline()));
  CHECK(std::ranges::equal(reader.bytes(), refusal()));
}

// The daemon's end of the deaf rank's connection would take ten minutes to close. Operations of the other
// group go on meanwhile, new groups form, and only the deaf rank's own group stays in the daemon's report.
TEST_CASE("daemon: a member that reads nothing delays its own group alone") {
  Config config;
  config.closeTimeout = Milliseconds(600'000);
  agg::DaemonOptions options = daemonOptions(config);
  auto daemon = agg::Daemon::start(std::move(options));
  REQUIRE(daemon);
  const Ranks::Make make = [&](int, std::unique_ptr<Mesh> mesh) -> std::unique_ptr<Group> {
    auto joined = joinAt((*daemon)->port(), *mesh);
    return joined ? ringOf(*mesh, joined.take()) : nullptr;
  };
  Ranks others(2);
  others.form(make, false);
  DeafRank deaf(**daemon);
  deaf.sendOperation();
  const auto resultIsSent = [&] {
    const auto reports = (*daemon)->reports();
    const auto* report = reportOf(reports, 4711);
    return report && report->statistics.bytesOut > 0;
  };
  REQUIRE(soon(resultIsSent));
  deaf.sendNonsenseAndStandStill();
  const auto isEnded = [&] {
    const auto reports = (*daemon)->reports();
    const auto* report = reportOf(reports, 4711);
    return report && !report->ended.empty();
  };
  REQUIRE(soon(isEnded));
  for (uint64_t round = 0; round < 50; round++) {
    Run run(others, allReduce(50000), round);
    REQUIRE(soon([&] { return run.step(0) & run.step(1); }));
  }
  Ranks later(2);
  later.form(make, false);
  CHECK(isEnded());
}

// Guests of both kinds: those that say nothing, and those that say what a rank said to somebody else and can
// do nothing with the answer.
TEST_CASE("daemon: guests that prove nothing keep nobody else out") {
  const Bytes words = GENERATE(Bytes{}, overheard());
  auto daemon = agg::Daemon::start(daemonOptions());
  REQUIRE(daemon);
  const std::string address = "127.0.0.1:" + std::to_string((*daemon)->port());
  std::atomic<bool> over{false};
  std::deque<Fd> silent;
  const auto knock = [&] {
    Patience shortly(Clock::system(), Milliseconds(1000));
    if (auto link = dialDaemon(address, shortly)) silent.push_back(link.take());
    if (!silent.empty()) (void)sendSome(silent.back().get(), words);
    if (silent.size() > 400) silent.pop_front();
  };
  for (int one = 0; one < 400; one++) knock();
  std::thread flood([&] {
    for (; !over; std::this_thread::sleep_for(std::chrono::milliseconds(4))) knock();
  });
  const auto before = std::chrono::steady_clock::now();
  for (int asked = 0; asked < 5; asked++) {
    StatusQuestion question{address, kTestSecret};
    question.timeout = Milliseconds(5000 * patience());
    CHECK(askStatus(question, Clock::system()));
  }
  CHECK(std::chrono::steady_clock::now() - before < std::chrono::seconds(5) * patience());
  over = true;
  flood.join();
}

TEST_CASE("daemon: what a rank announces takes no memory beyond what was reserved for its group") {
  const auto resident = [] {
    size_t pages = 0, here = 0;
    std::ifstream("/proc/self/statm") >> pages >> here;
    return here * 4096;
  };
  auto daemon = agg::Daemon::start(daemonOptions());
  REQUIRE(daemon);
  DeafRank greedy(**daemon);
  const size_t before = resident();
  for (uint64_t sequence = 0; sequence < 16; sequence++) greedy.announce(sequence, uint64_t{1} << 40);
  const auto areOpen = [&] {
    const auto reports = (*daemon)->reports();
    const auto* report = reportOf(reports, 4711);
    return report && report->statistics.operations == 16;
  };
  CHECK(soon(areOpen));
  CHECK(resident() < before + (size_t{64} << 20));
}
