// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/config.h"
#include "src/base/random.h"
#include "src/control/acceptor.h"
#include "tests/hostile/links_call.h"
#include "tests/hostile/links_middle.h"
#include "tests/support/patience.h"
#include "tests/unit/control_sockets.h"
#include "tests/unit/control_support.h"

// Control links with a man in the middle, with what he has overheard, with ranks of which only one has the
// job's secret, and with crowds at the door.
using namespace weft;
using namespace weft::control;
using namespace weft::hostile;

namespace {

Config briefConfig() {
  Config config;
  config.connectTimeout = kConnect;
  config.acceptTimeout = kConnect;
  return config;
}

size_t seeds() {
  return environmentValue("WEFT_TEST_FULL") ? 6000 : 1500;
}

std::string described(uint64_t seed, const Plan& plan) {
  return "seed " + std::to_string(seed) + ": " + nameOf(plan.trick) +
         (plan.toAcceptor ? " to the acceptor at " : " to the dialler at ") + std::to_string(plan.at) +
         (plan.always ? ", always" : ", once");
}

// A call through the middle. Returns what went wrong; empty: it ended as it may.
std::string attack(Middle& middle, const Plan& plan, Side& b, Listener& listener) {
  middle.follow(plan);
  Side a(briefConfig());
  return callThrough(*a.hub, *b.hub, listener);
}

// A secret in a file of its own, which goes with it.
class SecretFile {
 public:
  explicit SecretFile(const std::string& words, mode_t mode = 0600) {
    char name[] = "/tmp/weft-secret-XXXXXX";
    const Fd fd(::mkstemp(name));
    path_ = name;
    REQUIRE(::write(fd.get(), words.data(), words.size()) == static_cast<ssize_t>(words.size()));
    REQUIRE(::fchmod(fd.get(), mode) == 0);
  }
  ~SecretFile() { ::unlink(path_.c_str()); }
  std::string setting() const { return "@" + path_; }

 private:
  std::string path_;
};

Config withSecret(const SecretFile& file) {
  Config config = briefConfig();
  config.jobSecret = file.setting();
  return config;
}

std::string failure(Hub& hub, const Handle& handle) {
  auto call = hub.call(handle, bytesOf("hello"));
  REQUIRE(decided(*call));
  REQUIRE(call->state() == Call::State::failed);
  return call->error().message();
}

}  // namespace

TEST_CASE("a man in the middle of a handshake gains nothing, wherever he changes, cuts, repeats or holds") {
  Middle middle;
  Side b(briefConfig());
  auto listener = b.listen();
  size_t played = 0, held = 0;
  for (uint64_t seed = 1; seed <= seeds(); seed++) {
    Plan plan = planOf(seed, kPlaces);
    if (plan.trick == Trick::hold && ++held % 10 != 0) plan.trick = Trick::flip;  // a hold takes its time
    const std::string wrong = attack(middle, plan, b, *listener);
    INFO(described(seed, plan));
    CHECK(wrong == "");
    played += middle.played() ? 1 : 0;
  }
  CHECK(played > seeds() / 3);  // others wait for bytes that were never sent
  WARN("tricks that were reached: " << played << " of " << seeds());
}

TEST_CASE("without a trick a call goes through the middle, and its words are not to be read there") {
  Middle middle;
  const bool encrypts = GENERATE(true, false);
  Config config = briefConfig();
  if (!encrypts) config.encrypt = "off";
  Side a(config), b(config);
  auto listener = b.listen();
  middle.follow({});
  connect(*a.hub, *b.hub, *listener);
  const std::string up = textOf(middle.heard(true)), down = textOf(middle.heard(false));
  CHECK((up.find("hello") == std::string::npos) == encrypts);
  CHECK((down.find("welcome") == std::string::npos) == encrypts);
  CHECK((up.find("plugin") == std::string::npos) == encrypts);
}

TEST_CASE("bytes that are changed on a link that stands cost it a connection, and no message") {
  Middle middle;
  Side a, b;
  auto listener = b.listen();
  SeededRandom random(5);
  for (int round = 0; round < 20; round++) {
    const size_t at = 700 + random.below(2000);
    middle.follow({Trick::flip, random.below(2) == 0, at, false});
    Side near;
    const auto [peer, far] = connect(*near.hub, *b.hub, *listener);
    const size_t before = b.heard->count();
    for (int i = 0; i < 100; i++) {
      peer->send(16, bytesOf("message " + std::to_string(i)));
      far->send(16, bytesOf("answer " + std::to_string(i)));
    }
    INFO("round " << round << " at " << at);
    REQUIRE(eventually([&] { return b.heard->count() == before + 100 && near.heard->count() == 100; },
                       milliseconds(15000)));
    const auto messages = b.heard->messages();
    for (size_t i = 0; i < 100; i++)
      CHECK(textOf(messages[before + i].body) == "message " + std::to_string(i));
    CHECK((peer->alive() && far->alive()));
  }
}

TEST_CASE("what was overheard opens nothing when it is said again") {
  Middle middle;
  Side a(briefConfig()), b(briefConfig());
  auto listener = b.listen();
  middle.follow({});
  connect(*a.hub, *b.hub, *listener);
  const Bytes said = middle.heard(true);
  REQUIRE(said.size() > kHelloBytes);
  const uint16_t port = listener->handle().addresses[0].port();
  SeededRandom random(3);
  for (int i = 0; i < 200; i++) {
    const Fd fd = dialPast(port);
    REQUIRE(fd);
    const size_t bytes = i == 0 ? said.size() : 1 + random.below(said.size());
    (void)!::send(fd.get(), said.data(), bytes, MSG_NOSIGNAL);
  }
  std::this_thread::sleep_for(milliseconds(50));
  CHECK_FALSE(*listener->take());
  CHECK(b.heard->deaths().empty());
  CHECK(a.heard->deaths().empty());
  connect(*a.hub, *b.hub, *listener);
}

TEST_CASE("an answer that was overheard is no answer to another dial") {
  Bytes answer;
  Handle handle;
  {
    Middle middle;
    Side a(briefConfig()), b(briefConfig());
    auto listener = b.listen();
    middle.follow({});
    connect(*a.hub, *b.hub, *listener);
    answer = middle.heard(false);
    handle = listener->handle();
  }
  SocketAddress at;
  const Fd impostor = listenRaw(&at);
  handle.addresses = {at};
  Side a(briefConfig());
  auto call = a.hub->call(handle, bytesOf("hello"));
  const Fd fd(::accept(impostor.get(), nullptr, nullptr));
  (void)readExactly(fd.get(), kHelloBytes);
  (void)!::send(fd.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
  REQUIRE(decided(*call));
  CHECK(call->state() == Call::State::failed);
}

TEST_CASE("ranks of which one has the job's secret fail at once, and say which") {
  const SecretFile file("sixteen bytes or more of a secret\n"), other("another secret of the same length");
  Side with(withSecret(file)), same(withSecret(file)), different(withSecret(other)), without(briefConfig());
  auto listener = with.listen(), bare = without.listen();
  const auto started = std::chrono::steady_clock::now();
  {
    const WarningCatcher caught;
    CHECK(failure(*without.hub, listener->handle()).find("the process there has a secret of the job") !=
          std::string::npos);
    CHECK(failure(*with.hub, bare->handle()).find("the process there has none") != std::string::npos);
    CHECK(caught.warnings().size() == 2);
  }
  CHECK(failure(*different.hub, listener->handle()).find("different secrets (WEFT_SECRET)") !=
        std::string::npos);
  CHECK(std::chrono::steady_clock::now() - started < kConnect * test::patience());
  CHECK_FALSE(*listener->take());
  connect(*same.hub, *with.hub, *listener);
}

TEST_CASE("processes of which only one has WEFT_ENCRYPT=off fail at once, and say which") {
  Config off = briefConfig();
  off.encrypt = "off";
  Side plain(off), sealed(briefConfig());
  auto listener = sealed.listen();
  const WarningCatcher caught;
  CHECK(failure(*plain.hub, listener->handle()).find("WEFT_ENCRYPT is off in this process") !=
        std::string::npos);
  CHECK(caught.warnings().size() == 1);
}

TEST_CASE("a secret that is none is refused with the file's name") {
  const auto refusal = [](const std::string& setting) {
    HubOptions options;
    options.config.jobSecret = setting;
    options.config.socketIfname = "=lo";
    const auto made = Hub::create(std::move(options));
    return made ? std::string() : made.error().message();
  };
  const SecretFile brief("too short\n"), open("a secret that all users can read", 0644);
  CHECK(refusal("a secret in the environment").find("it takes @FILE") != std::string::npos);
  CHECK(refusal("@/nowhere/secret").find("/nowhere/secret cannot be opened") != std::string::npos);
  CHECK(refusal("@/dev/zero").find("no regular file") != std::string::npos);
  CHECK(refusal(brief.setting()).find("holds 9 bytes") != std::string::npos);
  const WarningCatcher caught;
  CHECK(refusal(open.setting()) == "");
  REQUIRE(caught.warnings().size() == 1);
  CHECK(caught.warnings()[0].find("chmod o-r") != std::string::npos);
}

TEST_CASE("a crowd at the door keeps nobody from connecting") {
  const auto from = static_cast<uint8_t>(GENERATE(1, 77));  // of the peers' own address, and of another
  CAPTURE(from);
  constexpr int kCalls = 30;
  Side b;
  auto listener = b.listen();
  const uint16_t port = listener->handle().addresses[0].port();
  const auto timed = [&] {
    const auto started = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; i++) {
      Side a;
      connect(*a.hub, *b.hub, *listener);
    }
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - started).count();
  };
  const double quiet = timed();
  std::atomic<bool> over{false};
  std::atomic<int> came{0};
  std::thread crowd([&] {
    std::vector<Fd> guests(400);
    for (size_t i = 0; !over; i++, came++) guests[i % guests.size()] = dialPast(port, from);
  });
  REQUIRE(eventually([&] { return came > 400; }));
  const double loud = timed();
  over = true;
  crowd.join();
  WARN(kCalls << " calls: " << quiet << " ms, and " << loud << " ms beside a crowd of " << came.load());
  CHECK(came > 400);
}
