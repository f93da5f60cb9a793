// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cerrno>
#include <netinet/in.h>

#include "src/base/net/guest.h"
#include "src/base/net/proof.h"
#include "src/base/net/sockets.h"
#include "tests/support/catch.h"
#include "tests/support/patience.h"

// Addresses, sockets, guests and proofs of src/base/net, over the loopback interface.
using namespace weft;

namespace {

std::span<const std::byte> bytesOf(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string textOf(std::span<const std::byte> bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

std::string firstOf(const std::string& text, Resolving what = Resolving::toDial) {
  const auto found = resolve(text, what);
  return found ? found->front().text() : found.error().detail();
}

Deadline within(const Clock& clock, Milliseconds time) {
  return {clock, clock.now() + time};
}

// Two ends of a connection over the loopback interface.
struct Ends {
  Ends() {
    auto opened = listenOn(SocketAddress::loopback(), "testing");
    REQUIRE(opened);
    listener = opened.take();
    const Deadline deadline = within(Clock::system(), Milliseconds(5000 * test::patience()));
    auto dialled = connectToOne({localAddress(listener.get())}, deadline);
    REQUIRE(dialled);
    near = dialled.take();
    auto accepted = acceptOne(listener.get());
    REQUIRE(accepted);
    far = accepted.take();
  }
  Fd listener, near, far;
};

}  // namespace

TEST_CASE("net: an address has its bytes, its port and its text") {
  const auto v4 = resolve("192.0.2.7:4711", Resolving::toDial);
  REQUIRE(v4);
  const SocketAddress& address = v4->front();
  CHECK(address.family() == AF_INET);
  CHECK(address.port() == 4711);
  CHECK(address.ip().size() == 4);
  CHECK(address.withPort(1).text() == "192.0.2.7:1");
  CHECK(SocketAddress::of(address.ip(), 4711).text() == address.text());
  CHECK(firstOf("[2001:db8::1]:80") == "[2001:db8::1]:80");
  CHECK(SocketAddress().text() == "no address");
}

TEST_CASE("net: loopback and link-local addresses are known") {
  const auto is = [](const char* text) { return resolve(text, Resolving::toDial)->front(); };
  CHECK(is("127.0.0.9:1").isLoopback());
  CHECK(is("[::1]:1").isLoopback());
  CHECK_FALSE(is("192.0.2.1:1").isLoopback());
  CHECK(is("169.254.3.4:1").isLinkLocal());
  CHECK(is("[fe80::1]:1").isLinkLocal());
  CHECK_FALSE(is("[2001:db8::1]:1").isLinkLocal());
  CHECK_FALSE(SocketAddress::any(AF_INET).isLoopback());
}

TEST_CASE("net: a text that is no address says what it should be") {
  CHECK(firstOf("nothing") == "\"nothing\" is not HOST:PORT");
  CHECK(firstOf("host:") == "\"host:\" is not HOST:PORT");
  CHECK(firstOf(":80") == "\":80\" is not HOST:PORT");
  CHECK(firstOf("nothing", Resolving::toListen) == "\"nothing\" is not ADDRESS:PORT");
  CHECK(resolve(":80", Resolving::toListen));
}

TEST_CASE("net: what is sent comes whole, and its reader leaves the rest") {
  const Ends ends;
  const Deadline deadline = within(Clock::system(), Milliseconds(5000 * test::patience()));
  REQUIRE(sendAll(ends.near.get(), bytesOf("hello, world"), deadline));
  ExactReader reader;
  reader.expect(5);
  REQUIRE(receiveAll(ends.far.get(), reader, deadline));
  CHECK(textOf(reader.bytes()) == "hello");
  reader.expect(7);
  REQUIRE(receiveAll(ends.far.get(), reader, deadline));
  CHECK(textOf(reader.bytes()) == ", world");
}

// The time of a test's clock passes by the pauses of the code under test alone.
TEST_CASE("net: a silent end is waited for until the deadline of the clock that was handed in") {
  const Ends ends;
  const FakeClock clock;
  const TimePoint before = clock.now();
  ExactReader reader;
  reader.expect(1);
  const Status got = receiveAll(ends.far.get(), reader, within(clock, Milliseconds(200)));
  REQUIRE_FALSE(got);
  CHECK(got.error().code() == Code::timeout);
  CHECK(clock.now() - before >= Milliseconds(200));
}

TEST_CASE("net: an end that hangs up is no silent one") {
  Ends ends;
  CHECK(isLinked(ends.far.get()));
  cut(ends.near);
  ExactReader reader;
  reader.expect(1);
  const Status got = receiveAll(ends.far.get(), reader, within(Clock::system(), Milliseconds(60'000)));
  REQUIRE_FALSE(got);
  CHECK(got.error().code() == Code::remote);
  CHECK_FALSE(isLinked(ends.far.get()));
}

TEST_CASE("net: dialling where nobody listens is refused, with the address") {
  SocketAddress address;
  {
    const auto closed = listenOn(SocketAddress::loopback(), "testing");
    REQUIRE(closed);
    address = localAddress(closed->get());
  }
  const auto fd = connectToOne({address}, within(Clock::system(), Milliseconds(5000 * test::patience())));
  REQUIRE_FALSE(fd);
  CHECK(fd.error().errnum() == ECONNREFUSED);
  CHECK(fd.error().detail().find(address.text()) != std::string::npos);
  CHECK_FALSE(connectToOne({}, within(Clock::system(), Milliseconds(1))));
}

TEST_CASE("net: a guest is heard message by message, until its time is over") {
  Ends ends;
  const TimePoint start{std::chrono::seconds(1)};
  Guest guest(std::move(ends.far), start + Milliseconds(100), 3);
  CHECK(guest.hear(start) == Guest::Heard::nothing);
  const Deadline deadline = within(Clock::system(), Milliseconds(5000 * test::patience()));
  REQUIRE(sendAll(ends.near.get(), bytesOf("one"), deadline));
  while (guest.hear(start) == Guest::Heard::nothing) REQUIRE_FALSE(deadline.isOver());
  CHECK(textOf(guest.bytes()) == "one");
  guest.expect(3);
  CHECK(guest.hear(start) == Guest::Heard::nothing);
  CHECK(guest.hear(start + Milliseconds(100)) == Guest::Heard::gone);
  guest.allowUntil(start + Milliseconds(200));
  CHECK(guest.hear(start + Milliseconds(100)) == Guest::Heard::nothing);
  cut(ends.near);
  while (guest.hear(start) == Guest::Heard::nothing) REQUIRE_FALSE(deadline.isOver());
  CHECK(guest.hear(start) == Guest::Heard::gone);
}

TEST_CASE("net: a proof is of the key, the nonce and what was said") {
  const Nonce nonce = freshNonce();
  CHECK(nonce != freshNonce());
  const auto said = [&](const Nonce& to, uint32_t what) {
    ByteWriter writer;
    writer.raw(to).put(what);
    return writer;
  };
  Key256 key{};
  const Tag128 proof = proofOf(key, said(nonce, 7));
  CHECK(proof == proofOf(key, said(nonce, 7)));
  CHECK(proof != proofOf(key, said(nonce, 8)));
  CHECK(proof != proofOf(key, said(freshNonce(), 7)));
  key[0] = std::byte{1};
  CHECK(proof != proofOf(key, said(nonce, 7)));
}

TEST_CASE("net: this host has an interface") {
  const auto all = localInterfaces();
  REQUIRE(all);
  CHECK_FALSE(all->empty());
}
