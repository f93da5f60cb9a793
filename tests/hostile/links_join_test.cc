// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <chrono>
#include <thread>

#include "src/agg/daemon.h"
#include "src/base/config.h"
#include "src/base/random.h"
#include "tests/coll/tree_of_daemons.h"
#include "tests/hostile/links_middle.h"
#include "tests/support/catch.h"
#include "tests/support/patience.h"
#include "tests/unit/control_sockets.h"

// A rank that joins an aggregation daemon, with somebody who took the daemon's port, who overheard another
// rank, who guesses the secret, or who stands in the middle.
using namespace weft;
using namespace weft::coll;
using namespace weft::hostile;
using namespace weft::test;

namespace {

constexpr size_t kHandshake = 12 + 48;  // bytes of either side
constexpr const char* kName = "a rank that nobody knows";
// Of a rank that is proven: its request, and the daemon's answer and verdict.
constexpr size_t kHead = 8, kAround = 4 + 16;
const size_t kUp = kHandshake + kAround + kHead + 24 + 2 + std::string(kName).size() + HandleBytes{}.size();
constexpr size_t kDown = kHandshake + kAround + kHead + 3 + HandleBytes{}.size() + kAround + kHead + 3;

Milliseconds briefly() {
  return Milliseconds(1500 * patience());
}

Config loopbackConfig() {
  Config config;
  config.socketIfname = "=lo";
  return config;
}

std::unique_ptr<agg::Daemon> startDaemon(const std::string& secret = kTestSecret) {
  agg::DaemonOptions options = daemonOptions(loopbackConfig());
  options.secret = secret;
  options.limits.groups = 100'000;  // what an attack leaves behind is waited for elsewhere
  options.limits.bytes = size_t{1} << 40;
  auto started = agg::Daemon::start(std::move(options));
  REQUIRE(started);
  return started.take();
}

// A rank that is a group by itself.
class Rank {
 public:
  Rank() : context_(daemonOptions(loopbackConfig()).context) {}
  Result<Membership> join(uint16_t port, Milliseconds timeout = briefly()) {
    JoinOptions join;
    join.context = context_;
    join.daemon = "127.0.0.1:" + std::to_string(port);
    join.secret = kTestSecret;
    join.timeout = timeout;
    join.request.group = ++group_;
    join.request.ranks = 1;
    join.request.chunkBytes = kLeastChunk;
    join.request.name = kName;
    return joinDaemon(std::move(join));
  }

 private:
  core::ContextRef context_;
  uint64_t group_ = 0;
};

// All that comes until the other end hangs up or is silent for some seconds.
Bytes readAll(const Fd& fd) {
  return control::readExactly(fd.get(), 4096);
}

void say(const Fd& fd, const Bytes& bytes) {
  (void)!::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

bool holdsHandle(const Bytes& bytes) {
  for (size_t at = 0; at + control::kHandleBytes <= bytes.size(); at++)
    if (control::Handle::decode(
            std::span<const std::byte, control::kHandleBytes>(bytes.data() + at, control::kHandleBytes)))
      return true;
  return false;
}

std::string textOf(const Bytes& bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

bool isShown(const Bytes& bytes) {
  return holdsHandle(bytes) || textOf(bytes).find(kName) != std::string::npos;
}

// What a rank says to a program that took the daemon's port and says this.
Bytes saidToImpostor(const Bytes& words) {
  SocketAddress at;
  const Fd listener = control::listenRaw(&at);
  Bytes heard;
  std::thread impostor([&] {
    const Fd rank(::accept(listener.get(), nullptr, nullptr));
    say(rank, words);
    heard = readAll(rank);
  });
  const auto joined = Rank().join(at.port());
  impostor.join();
  CHECK_FALSE(joined);
  if (!joined)
    CHECK(joined.error().message().find("127.0.0.1:" + std::to_string(at.port())) != std::string::npos);
  return heard;
}

// What a daemon says to somebody who says this.
Bytes saidTo(const agg::Daemon& daemon, const Bytes& words) {
  const Fd fd = dialPast(daemon.port());
  REQUIRE(fd);
  say(fd, words);
  return readAll(fd);
}

// As a rank of the version before would ask, with a proof that is none.
Bytes guess() {
  return ByteWriter().put(uint32_t{200}).put(kMagic).put(kVersion).put(uint16_t{33}).raw(Bytes(192)).take();
}

// A whole join that was overheard: what the rank said, and what the daemon did.
struct Overheard {
  Bytes rank, daemon;
};
Overheard overhear(Middle& middle, const agg::Daemon& daemon) {
  middle.follow({});
  const auto joined = Rank().join(daemon.port());
  REQUIRE(joined);
  return {middle.heard(true), middle.heard(false)};
}

std::string formedAt(agg::Daemon& daemon) {
  const std::string said = daemon.status(agg::Daemon::Format::json);
  const size_t from = said.find("\"groups_formed\"");
  return said.substr(from, said.find(',', from) - from);
}

// A join with the man in the middle following the plan, while the connection to the daemon is the first one:
// links of earlier joins may come between, and then it is done again. Returns whether it joined.
bool joinsWith(Middle& middle, const hostile::Plan& plan, Rank& rank, const agg::Daemon& daemon) {
  for (int turn = 0; turn < 5; turn++) {
    middle.follow(plan);
    const auto began = std::chrono::steady_clock::now();
    const auto joined = rank.join(daemon.port());
    CHECK(std::chrono::steady_clock::now() - began < briefly() + std::chrono::seconds(10) * patience());
    if (!joined) CHECK_FALSE(joined.error().detail().empty());
    const Bytes said = middle.heard(true);
    if (said.size() >= 12 && textOf(said).substr(4, 4) == "wcol") return static_cast<bool>(joined);
  }
  FAIL("the daemon's connection never came first");
  return false;
}

}  // namespace

TEST_CASE("join: who took the daemon's port gets no handle, whatever he says") {
  SeededRandom random(7);
  Bytes noise(kHandshake);
  for (std::byte& one : noise) one = static_cast<std::byte>(random.next());
  const Bytes greeting =
      ByteWriter().put(uint32_t{24}).put(kMagic).put(kVersion).put(uint16_t{32}).raw(Bytes(16)).take();
  for (const Bytes& words : {Bytes{}, greeting, noise, refusal()}) {
    const Bytes heard = saidToImpostor(words);
    CHECK(heard.size() <= kHandshake);
    CHECK_FALSE(isShown(heard));
  }
}

TEST_CASE("join: who took the daemon's port and says again what the daemon said gets no handle") {
  Overheard before;
  {
    Middle middle;
    const auto daemon = startDaemon();
    before = overhear(middle, *daemon);
  }
  REQUIRE(before.daemon.size() > kHandshake);
  const Bytes heard = saidToImpostor(before.daemon);
  CHECK(heard.size() == kHandshake);
  CHECK_FALSE(isShown(heard));
}

TEST_CASE("join: a refusal is the same for all secrets, so that no guess can be tried on it") {
  const auto one = startDaemon(), other = startDaemon("another secret of the same kind");
  const Bytes refused = saidTo(*one, guess());
  CHECK_FALSE(refused.empty());
  CHECK(saidTo(*one, guess()) == refused);
  CHECK(saidTo(*other, guess()) == refused);
  // Nor does a guess that is put well hear more, but on the daemon that has that secret.
  SocketAddress at;
  const Fd listener = control::listenRaw(&at);
  Bytes opening;
  std::thread rank([&] { (void)Rank().join(at.port()); });
  {
    const Fd fd(::accept(listener.get(), nullptr, nullptr));
    opening = control::readExactly(fd.get(), kHandshake);
  }
  rank.join();
  CHECK(saidTo(*other, opening) == refused);
  CHECK(saidTo(*one, opening).size() == kHandshake);
}

TEST_CASE("join: nothing that is worth anything can be read on the way") {
  Middle middle;
  const auto daemon = startDaemon();
  const Overheard heard = overhear(middle, *daemon);
  CHECK(heard.rank.size() == kUp);
  CHECK(heard.daemon.size() == kDown);
  CHECK_FALSE(isShown(heard.rank));
  CHECK_FALSE(isShown(heard.daemon));
  JoinRequest clear;
  const core::ContextRef context = daemonOptions(loopbackConfig()).context;
  const auto listener = context->net().listen(context, 0, clear.handle);
  REQUIRE(listener);
  CHECK(holdsHandle(clear.encode()));  // it would be seen
}

TEST_CASE("join: what was overheard joins nothing when it is said again, whole or in part") {
  Middle middle;
  const auto daemon = startDaemon();
  const Overheard heard = overhear(middle, *daemon);
  const std::string formed = formedAt(*daemon);
  SeededRandom random(3);
  for (int i = 0; i < 50; i++) {
    const size_t bytes =
        i == 0 ? heard.rank.size() : kHandshake + random.below(heard.rank.size() - kHandshake);
    const Fd fd = dialPast(daemon->port());
    REQUIRE(fd);
    say(fd, Bytes(heard.rank.begin(), heard.rank.begin() + static_cast<ptrdiff_t>(bytes)));
    if (bytes < heard.rank.size()) continue;
    CHECK(readAll(fd).size() == kHandshake);  // as to everybody who says the first half
  }
  CHECK(formedAt(*daemon) == formed);
  CHECK(Rank().join(daemon->port()));
}

TEST_CASE("join: no byte of it can be changed on the way, wherever it is") {
  Middle middle;
  const auto daemon = startDaemon();
  Rank rank;
  for (const bool toAcceptor : {true, false}) {
    for (size_t at = 0; at < (toAcceptor ? kUp : kDown); at++) {
      INFO((toAcceptor ? "to the daemon at " : "to the rank at ") << at);
      CHECK_FALSE(joinsWith(middle, {Trick::flip, toAcceptor, at, false}, rank, *daemon));
      CHECK(middle.played());
    }
  }
  middle.follow({});
  CHECK(rank.join(daemon->port()));
}

TEST_CASE("join: a man in the middle who cuts, repeats, swaps, inserts or holds stops nobody for ever") {
  Middle middle;
  const auto daemon = startDaemon();
  Rank rank;
  size_t holds = 0;
  for (uint64_t seed = 1; seed <= (environmentValue("WEFT_TEST_FULL") ? 4000 : 400); seed++) {
    hostile::Plan plan = planOf(seed, std::min(kUp, kDown));
    plan.always = false;
    if (plan.trick == Trick::hold && ++holds % 20 != 0) plan.trick = Trick::cut;
    INFO("seed " << seed << ": " << nameOf(plan.trick) << (plan.toAcceptor ? " up at " : " down at ")
                 << plan.at);
    (void)joinsWith(middle, plan, rank, *daemon);
  }
  middle.follow({});
  CHECK(rank.join(daemon->port()));
}
