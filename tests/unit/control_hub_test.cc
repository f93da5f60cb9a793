// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <array>
#include <poll.h>
#include <vector>

#include "src/base/net/sockets.h"
#include "src/control/hub.h"
#include "tests/unit/control_support.h"

using namespace weft;
using namespace weft::control;

TEST_CASE("a call reaches its listener and its answer comes back") {
  Side a, b;
  auto listener = b.listen();
  const auto [near, far] = connect(*a.hub, *b.hub, *listener);
  CHECK(near->incarnation() == b.hub->incarnation());
  CHECK(far->incarnation() == a.hub->incarnation());
  CHECK(near->alive());
  CHECK(near->fingerprint().at(0).value == "test");
  CHECK(near->name().find("pid") != std::string::npos);
}

// 127.0.0.2 leads to this host as 127.0.0.1 does, but no peer is told it.
TEST_CASE("the control port is open on the addresses that peers are told, and on no other") {
  Side side;
  auto listener = side.listen();
  const std::vector<SocketAddress> told = listener->handle().addresses;
  REQUIRE_FALSE(told.empty());
  const auto opens = [](const SocketAddress& address) {
    auto fd = startConnecting(address);
    return fd && eventually([&] {
             pollfd one{fd->get(), POLLOUT, 0};
             return ::poll(&one, 1, 0) > 0;
           }) &&
           connectError(fd->get()) == 0;
  };
  for (const SocketAddress& address : told) CHECK(opens(address));
  constexpr std::array<std::byte, 4> kOther = {std::byte{127}, {}, {}, std::byte{2}};
  CHECK_FALSE(opens(SocketAddress::of(kOther, told.front().port())));
}

TEST_CASE("messages arrive in order, both ways, up to the largest size") {
  Side a, b;
  auto listener = b.listen();
  const auto [near, far] = connect(*a.hub, *b.hub, *listener);
  constexpr size_t kCount = 400;
  for (size_t i = 0; i < kCount; i++) {
    Bytes body(i % 7 == 0 ? 64 * 1024 : i * 13, std::byte(i));
    near->send(static_cast<uint16_t>(16 + i), body);
    far->send(static_cast<uint16_t>(16 + i), std::move(body));
  }
  for (Side* side : {&a, &b}) {
    REQUIRE(eventually([&] { return side->heard->count() == kCount; }));
    const auto messages = side->heard->messages();
    for (size_t i = 0; i < kCount; i++) {
      REQUIRE(messages[i].type == 16 + i);
      REQUIRE(messages[i].body == Bytes(i % 7 == 0 ? 64 * 1024 : i * 13, std::byte(i)));
    }
  }
}

TEST_CASE("two calls at once from both sides share one link") {
  for (int round = 0; round < 50; round++) {
    Side a, b;
    auto atA = a.listen();
    auto atB = b.listen();
    auto toB = a.hub->call(atB->handle(), bytesOf("from a"));
    auto toA = b.hub->call(atA->handle(), bytesOf("from b"));
    auto inB = nextRequest(*atB);
    auto inA = nextRequest(*atA);
    REQUIRE(inA);
    REQUIRE(inB);
    a.hub->reply(*inA, {});
    b.hub->reply(*inB, {});
    REQUIRE(decided(*toA));
    REQUIRE(decided(*toB));
    CHECK(toB->state() == Call::State::replied);
    CHECK(toA->state() == Call::State::replied);
    CHECK(toB->peer() == inA->peer);
    CHECK(toA->peer() == inB->peer);
    CHECK(a.heard->deaths().empty());
    CHECK(b.heard->deaths().empty());
  }
}
