// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cerrno>

#include "src/base/random.h"
#include "src/control/acceptor.h"
#include "src/control/link_io.h"
#include "tests/unit/control_sockets.h"
#include "tests/unit/control_support.h"

using namespace weft;
using namespace weft::control;
using Clk = std::chrono::steady_clock;

namespace {

uint16_t portOf(Listener& listener) {
  return listener.handle().addresses.front().port();
}

Bytes numbered(uint32_t n) {
  Bytes body(4 + n % 3000);
  std::memcpy(body.data(), &n, sizeof n);
  return body;
}

// Every message from 0 to count-1 once, in order.
bool complete(Recorder& heard, uint32_t count) {
  const auto messages = heard.messages();
  if (messages.size() != count) return false;
  for (uint32_t i = 0; i < count; i++) {
    if (messages[i].body != numbered(i)) return false;
  }
  return true;
}

// A message to `far` that arrives at `heard` soon.
void checkAlive(const PeerRef& to, Recorder& heard) {
  const size_t before = heard.count();
  const auto start = Clk::now();
  to->send(30, bytesOf("still here"));
  CHECK(eventually([&] { return heard.count() == before + 1; }));
  CHECK(Clk::now() - start < milliseconds(1000));
}

}  // namespace

TEST_CASE("a connection's end is a sign of the other host only where that host sent it") {
  CHECK(isSignOfHost(0));  // its end was read
  CHECK(isSignOfHost(ECONNRESET));
  for (const int ours : {ETIMEDOUT, EHOSTUNREACH, ENETUNREACH, ENETDOWN, ECONNABORTED})
    CHECK_FALSE(isSignOfHost(ours));
}

TEST_CASE("a link that is cut again and again loses and doubles nothing") {
  Side a, b;
  auto listener = b.listen();
  auto back = a.listen();
  const auto [near, far] = connect(*a.hub, *b.hub, *listener);
  constexpr uint32_t kCount = 6000;
  int cuts = 0;
  for (uint32_t i = 0; i < kCount; i++) {
    near->send(16, numbered(i));
    far->send(16, numbered(i));
    if (i % 100 != 50) continue;
    // Either side may have redialled: the link leads to one of the two ports.
    REQUIRE(eventually([&] { return cutLinks(portOf(*listener)) + cutLinks(portOf(*back)) > 0; }));
    cuts++;
  }
  CAPTURE(cuts, a.heard->count(), b.heard->count(), a.heard->deaths(), b.heard->deaths());
  CHECK(cuts == kCount / 100);
  CHECK(eventually([&] { return a.heard->count() >= kCount && b.heard->count() >= kCount; },
                   milliseconds(20000)));
  CHECK(complete(*a.heard, kCount));
  CHECK(complete(*b.heard, kCount));
  CHECK(near->alive());
  CHECK(far->alive());
  CHECK(a.heard->deaths().empty());
  CHECK(b.heard->deaths().empty());
}

TEST_CASE("an idle link that is cut comes back by itself") {
  Side a, b;
  auto listener = b.listen();
  auto back = a.listen();
  const auto [near, far] = connect(*a.hub, *b.hub, *listener);
  for (int i = 0; i < 20; i++) {
    REQUIRE(eventually([&] { return cutLinks(portOf(*listener)) + cutLinks(portOf(*back)) > 0; }));
    checkAlive(near, *b.heard);
    checkAlive(far, *a.heard);
  }
}

TEST_CASE("a peer that is gone while its link is broken is found dead at once") {
  Side a;
  auto b = std::make_unique<Side>();
  auto listener = b->listen();
  const auto [near, far] = connect(*a.hub, *b->hub, *listener);
  const auto start = Clk::now();
  cutLinks(portOf(*listener));
  b->hub.reset();
  REQUIRE(eventually([&link = near] { return !link->alive(); }));
  CHECK(Clk::now() - start < milliseconds(1000));
  REQUIRE(eventually([&] { return a.heard->deaths().size() == 1; }));
  near->send(16, bytesOf("dropped"));
}

TEST_CASE("a goodbye comes after everything that was sent before it") {
  Side a;
  auto b = std::make_unique<Side>();
  auto listener = b->listen();
  const auto [near, far] = connect(*a.hub, *b->hub, *listener);
  for (uint32_t i = 0; i < 300; i++) far->send(16, numbered(i));
  const auto start = Clk::now();
  b->hub.reset();
  CHECK(Clk::now() - start < milliseconds(1000));
  REQUIRE(eventually([&link = near] { return !link->alive(); }));
  CHECK(complete(*a.heard, 300));
  CHECK(near->reason().message().find("peer closed") != std::string::npos);
}

TEST_CASE("two hubs may say goodbye at once") {
  for (int i = 0; i < 20; i++) {
    auto a = std::make_unique<Side>();
    auto b = std::make_unique<Side>();
    auto listener = b->listen();
    connect(*a->hub, *b->hub, *listener);
    std::thread other([&] { a->hub.reset(); });
    const auto start = Clk::now();
    b->hub.reset();
    other.join();
    CHECK(Clk::now() - start < milliseconds(1000));
  }
}

TEST_CASE("ticks come when asked for, and posted work runs on the control thread") {
  Side a;
  REQUIRE(eventually([&] { return a.heard->ticks() >= 1; }));
  const int before = a.heard->ticks();
  a.hub->wake();
  REQUIRE(eventually([&] { return a.heard->ticks() > before; }));
  std::atomic<int> ran{0};
  a.hub->post([&] { ran = a.hub->onControlThread() ? 2 : 1; });
  REQUIRE(eventually([&] { return ran != 0; }));
  CHECK(ran == 2);
  CHECK_FALSE(a.hub->onControlThread());
}

TEST_CASE("a thousand strangers disturb nobody") {
  Side a, b;
  auto listener = b.listen();
  const auto [near, far] = connect(*a.hub, *b.hub, *listener);
  const SocketAddress address = listener->handle().addresses.front();
  const size_t before = openDescriptors().size();
  const auto kind = GENERATE(0, 1, 2);
  CAPTURE(kind);
  std::vector<Fd> strangers;
  SeededRandom random(11);
  for (int i = 0; i < 1000; i++) {
    Fd fd = connectTo(address);
    REQUIRE(fd);
    const uint64_t noise[32] = {random.next(), random.next()};
    if (kind == 1) (void)!send(fd.get(), noise, sizeof noise, MSG_NOSIGNAL);
    if (kind == 2) (void)!send(fd.get(), "WFTL", 1 + static_cast<size_t>(i) % 4, MSG_NOSIGNAL);
    strangers.push_back(std::move(fd));
    if (i % 100 == 0) checkAlive(near, *b.heard);
  }
  checkAlive(far, *a.heard);
  Side c;
  connect(*c.hub, *b.hub, *listener);
  c.hub.reset();
  CHECK(eventually(
      [&] { return openDescriptors().size() <= before + strangers.size() + Acceptor::kMostGuests; }));
  // Expect: those who stay silent are dropped when their time is over.
  if (kind == 0) {
    CHECK(eventually([&] { return openDescriptors().size() <= before + strangers.size(); },
                     milliseconds(8000)));
  }
  CHECK(near->alive());
}
