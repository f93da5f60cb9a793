// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/log.h"
#include "src/control/wire.h"
#include "tests/unit/control_sockets.h"
#include "tests/unit/control_support.h"

using namespace weft;
using namespace weft::control;
using Clk = std::chrono::steady_clock;

namespace {

std::string failureOf(const Call& call) {
  REQUIRE(decided(call));
  REQUIRE(call.state() == Call::State::failed);
  CHECK(call.peer() == nullptr);
  return call.error().message();
}

bool contains(const std::string& text, const std::string& part) {
  CAPTURE(text, part);
  CHECK(text.find(part) != std::string::npos);
  return text.find(part) != std::string::npos;
}

Config withConnectTimeout(int ms) {
  Config config;
  config.connectTimeout = config.acceptTimeout = Milliseconds(ms);
  return config;
}

}  // namespace

TEST_CASE("a process can connect to itself") {
  Side a;
  auto listener = a.listen();
  const auto [near, far] = connect(*a.hub, *a.hub, *listener);
  CHECK(near == far);
  near->send(20, bytesOf("to myself"));
  REQUIRE(eventually([&] { return a.heard->count() == 1; }));
  CHECK(textOf(a.heard->messages()[0].body) == "to myself");
  Handle wrong = listener->handle();
  wrong.secret[0] ^= std::byte{1};
  contains(failureOf(*a.hub->call(wrong, {})), "secret");
  a.hub.reset();
  CHECK_FALSE(near->alive());
}

TEST_CASE("links work over IPv6") {
  Side a, b;
  auto listener = b.listen();
  Handle handle = listener->handle();
  std::erase_if(handle.addresses, [](const auto& address) { return address.family() != AF_INET6; });
  REQUIRE_FALSE(handle.addresses.empty());  // every Linux with IPv6 has ::1
  auto call = a.hub->call(handle, bytesOf("six"));
  auto request = nextRequest(*listener);
  REQUIRE(request);
  CHECK(contains(request->peer->name(), "[::1]"));
  b.hub->reply(*request, {});
  REQUIRE(decided(*call));
  CHECK(call->state() == Call::State::replied);
}

TEST_CASE("a listener's refusal is the call's error") {
  Side a, b;
  auto listener = b.listen();
  auto call = a.hub->call(listener->handle(), {});
  auto request = nextRequest(*listener);
  REQUIRE(request);
  b.hub->refuse(*request, Error(Code::config, "accepting", "no rail in common"));
  contains(failureOf(*call), "no rail in common");
  CHECK(call->error().code() == Code::config);
}

TEST_CASE("a wrong secret is refused, with and without a link") {
  Side a, b;
  auto listener = b.listen();
  Handle wrong = listener->handle();
  wrong.secret[5] ^= std::byte{4};
  contains(failureOf(*a.hub->call(wrong, {})), "secret");
  connect(*a.hub, *b.hub, *listener);
  contains(failureOf(*a.hub->call(wrong, {})), "secret");
  CHECK_FALSE(*listener->take());
  connect(*a.hub, *b.hub, *listener);
}

TEST_CASE("a closed listener refuses at once, with and without a link") {
  Side a, b;
  auto closed = b.listen();
  const Handle handle = closed->handle();
  closed.reset();
  contains(failureOf(*a.hub->call(handle, {})), "listener closed");
  auto open = b.listen();
  connect(*a.hub, *b.hub, *open);
  contains(failureOf(*a.hub->call(handle, {})), "listener closed");
  connect(*a.hub, *b.hub, *open);
}

TEST_CASE("closing a listener refuses the calls it has not answered, and only those") {
  Side a, b;
  auto listener = b.listen();
  auto answered = a.hub->call(listener->handle(), bytesOf("1"));
  auto first = nextRequest(*listener);
  REQUIRE(first);
  auto taken = a.hub->call(listener->handle(), bytesOf("2"));
  REQUIRE(nextRequest(*listener));
  auto waiting = a.hub->call(listener->handle(), bytesOf("3"));
  b.hub->reply(*first, bytesOf("yes"));
  listener.reset();
  REQUIRE(decided(*answered));
  CHECK(answered->state() == Call::State::replied);
  contains(failureOf(*taken), "listener closed");
  contains(failureOf(*waiting), "listener closed");
}

TEST_CASE("a process that is gone refuses at once") {
  Side a;
  auto b = std::make_unique<Side>();
  auto listener = b->listen();
  const Handle handle = listener->handle();
  SECTION("before the call") {
    b.reset();
    const auto start = Clk::now();
    contains(failureOf(*a.hub->call(handle, {})), "gone");
    CHECK(Clk::now() - start < milliseconds(1000));
  }
  SECTION("while the call waits") {
    auto call = a.hub->call(handle, {});
    REQUIRE(nextRequest(*listener));
    const auto start = Clk::now();
    b.reset();
    contains(failureOf(*call), "peer closed");
    CHECK(Clk::now() - start < milliseconds(1000));
    REQUIRE(eventually([&] { return a.heard->deaths().size() == 1; }));
  }
  SECTION("and another process has its port") {
    Side c;
    Handle foreign = c.listen()->handle();
    foreign.process = handle.process;
    contains(failureOf(*a.hub->call(foreign, {})), "another process listens there");
  }
}

TEST_CASE("a call nobody answers fails at its deadline") {
  Side a(withConnectTimeout(200)), b;
  auto listener = b.listen();
  const auto start = Clk::now();
  auto call = a.hub->call(listener->handle(), {});
  contains(failureOf(*call), "200 ms");
  CHECK(call->error().code() == Code::timeout);
  CHECK(Clk::now() - start >= milliseconds(200));
  CHECK(Clk::now() - start < milliseconds(2000));
}

TEST_CASE("a peer that is linked may take its time to answer, up to a deadline of its own") {
  Config config = withConnectTimeout(1000);
  config.acceptTimeout = Milliseconds(4000);
  Side a(config), b;
  auto listener = b.listen();
  auto call = a.hub->call(listener->handle(), {});
  auto never = b.listen();
  auto late = a.hub->call(never->handle(), {});
  std::this_thread::sleep_for(milliseconds(1500));
  CHECK(call->state() == Call::State::pending);
  auto request = nextRequest(*listener);
  REQUIRE(request);
  b.hub->reply(*request, {});
  REQUIRE(decided(*call));
  CHECK(call->state() == Call::State::replied);
  contains(failureOf(*late), "no answer within 4000 ms (WEFT_ACCEPT_TIMEOUT); it is linked");
}

TEST_CASE("a port that accepts and says nothing fails at the deadline") {
  Side a(withConnectTimeout(300)), b;
  Handle handle = b.listen()->handle();
  SocketAddress silent;
  const Fd raw = listenRaw(&silent);
  handle.addresses = {silent};
  contains(failureOf(*a.hub->call(handle, {})), "no answer within 300 ms");
}

TEST_CASE("a dead address does not hide a living one") {
  Side a, b;
  auto listener = b.listen();
  Handle handle = listener->handle();
  SocketAddress dead;
  listenRaw(&dead).reset();
  handle.addresses.insert(handle.addresses.begin(), dead);
  auto call = a.hub->call(handle, {});
  auto request = nextRequest(*listener);
  REQUIRE(request);
  b.hub->reply(*request, {});
  REQUIRE(decided(*call));
  CHECK(call->state() == Call::State::replied);
}

TEST_CASE("processes that do not fit fail on both sides, naming the field and both values") {
  Side a({}, {{"provider", "tcp", true}, {"host", "x", false}});
  Side b({}, {{"provider", "shm", true}, {"host", "y", false}});
  auto first = b.listen();
  auto second = b.listen();
  auto call1 = a.hub->call(first->handle(), {});
  auto call2 = a.hub->call(second->handle(), {});
  for (Call* call : {call1.get(), call2.get()}) {
    const std::string message = failureOf(*call);
    contains(message, "provider is \"tcp\" here and \"shm\" there");
  }
  for (Listener* listener : {first.get(), second.get()}) {
    std::string message;
    REQUIRE(eventually([&] {
      auto taken = listener->take();
      if (!taken) message = taken.error().message();
      return !taken;
    }));
    contains(message, "provider is \"shm\" here and \"tcp\" there");
    auto again = listener->take();  // said once
    REQUIRE(again);
    CHECK_FALSE(*again);
  }
}

// It may go as soon as it was told, so before it has taken the other one's call.
TEST_CASE(
    "of two processes that do not fit the one that stays names why, also to calls after the other went") {
  Side a({}, {{"provider", "tcp", true}});
  auto b = std::make_unique<Side>(Config{}, Fingerprint{{"provider", "shm", true}});
  auto ours = a.listen();
  auto theirs = b->listen();
  const Handle handle = theirs->handle();
  const bool dialled = GENERATE(false, true);
  CAPTURE(dialled);
  if (dialled) {
    contains(failureOf(*a.hub->call(handle, {})), "provider is \"tcp\" here and \"shm\" there");
  } else {
    contains(failureOf(*b->hub->call(ours->handle(), {})), "provider is \"shm\" here and \"tcp\" there");
  }
  const bool listenerFirst = GENERATE(false, true);
  if (listenerFirst) {
    theirs.reset();
    contains(failureOf(*a.hub->call(handle, {})), "provider is \"tcp\" here and \"shm\" there");
  }
  b.reset();
  contains(failureOf(*a.hub->call(handle, {})), "provider is \"tcp\" here and \"shm\" there");
}

TEST_CASE("two processes that do not fit and call each other at once both name why, whoever goes first") {
  for (int i = 0; i < 100; i++) {
    std::unique_ptr<Side> sides[2];
    std::unique_ptr<Listener> listeners[2];
    std::string said[2];
    for (int s = 0; s < 2; s++) {
      sides[s] = std::make_unique<Side>(Config{}, Fingerprint{{"tuner", s == 0 ? "0" : "1", true}});
      listeners[s] = sides[s]->listen();
    }
    const auto life = [&](int s, Handle other) {
      auto call = sides[s]->hub->call(other, {});
      (void)eventually([&] {
        auto taken = listeners[s]->take();
        if (!taken) said[s] = taken.error().message();
        if (call->state() == Call::State::failed) said[s] = call->error().message();
        return !said[s].empty();
      });
      call.reset();
      listeners[s].reset();
      sides[s]->hub.reset();
    };
    const Handle handles[2] = {listeners[0]->handle(), listeners[1]->handle()};
    std::thread other([&] { life(1, handles[0]); });
    life(0, handles[1]);
    other.join();
    contains(said[0], "tuner is \"0\" here and \"1\" there");
    contains(said[1], "tuner is \"1\" here and \"0\" there");
  }
}

TEST_CASE("another wire version is named on the side that dials") {
  Side a, b;
  Handle handle = b.listen()->handle();
  SocketAddress address;
  const Fd raw = listenRaw(&address);
  handle.addresses = {address};
  auto call = a.hub->call(handle, {});
  const Fd accepted(accept4(raw.get(), nullptr, nullptr, SOCK_CLOEXEC));
  REQUIRE(readExactly(accepted.get(), kHelloBytes).size() == kHelloBytes);
  Challenge challenge;
  challenge.version = kWireVersion + 1;
  const Bytes answer = encodeChallenge(challenge);
  REQUIRE(send(accepted.get(), answer.data(), answer.size(), MSG_NOSIGNAL) > 0);
  contains(failureOf(*call), format("wire version %d, this process %d", kWireVersion + 1, kWireVersion));
}

TEST_CASE("a dialler of another wire version is told ours") {
  Side b;
  auto listener = b.listen();
  const Fd fd = connectTo(listener->handle().addresses[0]);
  REQUIRE(fd);
  Hello hello;
  hello.version = kWireVersion + 1;
  Bytes bytes = encodeHello(hello);
  bytes.resize(bytes.size() + 100);  // theirs may be longer
  REQUIRE(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0);
  std::this_thread::sleep_for(milliseconds(50));  // the answer must outlast what its sender does next
  const auto answer = decodeChallenge(readExactly(fd.get(), kStartBytes));
  REQUIRE(answer);
  CHECK(answer->answer == Answer::otherVersion);
  CHECK(answer->version == kWireVersion);
}

TEST_CASE("calls and listeners may go at any moment") {
  Side a, b;
  for (int i = 0; i < 300; i++) {
    auto listener = b.listen();
    auto call = a.hub->call(listener->handle(), bytesOf("x"));
    if (i % 3 == 0) call.reset();
    if (i % 3 == 1) listener.reset();
    if (i % 7 == 0) std::this_thread::yield();
  }
  auto listener = b.listen();
  connect(*a.hub, *b.hub, *listener);
}

TEST_CASE("what a hub handed out stays safe when it is gone") {
  auto a = std::make_unique<Side>();
  Side b;
  auto listener = b.listen();
  auto own = a->listen();
  auto pair = connect(*a->hub, *b.hub, *listener);
  auto open = a->hub->call(listener->handle(), {});
  a->hub.reset();
  CHECK_FALSE(pair.near->alive());
  pair.near->send(16, bytesOf("nobody"));
  contains(failureOf(*open), "closed");
  CHECK_FALSE(*own->take());
  open.reset();
  own.reset();
  REQUIRE(eventually([&] { return !pair.far->alive(); }));
  contains(pair.far->reason().message(), "peer closed");
}
