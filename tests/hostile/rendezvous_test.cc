// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <netinet/in.h>
#include <string>
#include <thread>
#include <vector>

#include "src/base/net/sockets.h"
#include "src/base/random.h"
#include "tests/support/catch.h"
#include "tools/netdriver/bootstrap.h"

// Strangers at the door of a run of `weft perf` or `weft doctor --all`, and members that go wrong.
using namespace weft;
using netdriver::Answer;
using netdriver::Bootstrap;
using netdriver::Hello;
using netdriver::Introduction;
using netdriver::Opening;
using netdriver::Place;
using netdriver::Verdict;

namespace {

constexpr const char* kToken = "0123456789abcdef0123456789abcdef";
constexpr Milliseconds kPatience{20000};
using Made = Result<std::unique_ptr<Bootstrap>>;

// Rank 0 of a run of two, which waits for the other one.
struct Run {
  explicit Run(Milliseconds timeout = kPatience) {
    auto listener = netdriver::listenLocally();
    REQUIRE(listener);
    port = listener->port;
    Place place = placeOf(0, kToken);
    place.listenFd = listener->fd.release();
    root = std::async(std::launch::async, [place, timeout] { return Bootstrap::create(place, timeout); });
  }
  Place placeOf(int rank, const std::string& token) const {
    Place place;
    place.rank = rank;
    place.size = 2;
    place.port = port;
    place.token = token;
    return place;
  }
  Made join(const std::string& token) const { return Bootstrap::create(placeOf(1, token), kPatience); }

  uint16_t port = 0;
  std::future<Made> root;
};

Deadline within(Milliseconds time) {
  return {Clock::system(), Clock::system().now() + time};
}

Fd dial(uint16_t port) {
  auto fd = connectToOne({SocketAddress::loopback(port)}, within(kPatience));
  REQUIRE(fd);
  return std::move(*fd);
}

template <class T>
bool receive(const Fd& fd, T* value, Milliseconds time = kPatience) {
  ExactReader reader;
  reader.expect(sizeof(T));
  if (!receiveAll(fd.get(), reader, within(time))) return false;
  std::memcpy(value, reader.bytes().data(), sizeof(T));
  return true;
}

template <class T>
bool give(const Fd& fd, const T& value) {
  return bool{sendAll(fd.get(), std::as_bytes(std::span(&value, 1)), within(kPatience))};
}

// Both ends work: a value of each goes to the other.
void expectToWork(Run* run, const std::unique_ptr<Bootstrap>& other) {
  Made root = run->root.get();
  REQUIRE(root);
  std::thread there([&] { CHECK(other->gatherValues(7)); });
  const auto values = (*root)->gatherValues(5);
  there.join();
  REQUIRE(values);
  CHECK(*values == std::vector<int>{5, 7});
}

}  // namespace

TEST_CASE("a stranger who is first at the door gets no rank, and the run begins without him") {
  Run run;
  for (const std::string token : {"", "0123456789abcdef0123456789abcdee"}) {
    const Made stranger = run.join(token);
    REQUIRE_FALSE(stranger);
    CHECK(stranger.error().message().find("another token") != std::string::npos);
  }
  const Made member = run.join(kToken);
  REQUIRE(member);
  expectToWork(&run, *member);
}

TEST_CASE("guests that say nothing, hundreds of them, hold up nobody") {
  Run run;
  std::vector<Fd> silent;
  for (int i = 0; i < 600; i++) silent.push_back(dial(run.port));
  const auto began = Clock::system().now();
  const Made member = run.join(kToken);
  REQUIRE(member);
  CHECK(Clock::system().now() - began < std::chrono::seconds(10));
  expectToWork(&run, *member);
}

TEST_CASE("an introduction that was overheard is worth nothing on another connection") {
  Run run;
  const Fd first = dial(run.port);
  Opening opening;
  REQUIRE(receive(first, &opening));
  const Introduction overheard =
      netdriver::introduce(netdriver::keyOf(kToken), netdriver::helloOf(1, 2), opening);
  const Fd again = dial(run.port);
  Opening other;
  REQUIRE(receive(again, &other));
  CHECK(other.nonce != opening.nonce);
  REQUIRE(give(again, overheard));
  Answer answer;
  REQUIRE(receive(again, &answer));
  CHECK(answer.verdict == Verdict::stranger);
  CHECK(answer.proof == Tag128{});  // nothing to try tokens on
  const Made member = run.join(kToken);
  REQUIRE(member);
  expectToWork(&run, *member);
}

TEST_CASE("the token is not enough where the job has a secret, too") {
  Run run;
  Protection other;
  other.jobSecret = Key256{std::byte{1}};
  const Fd guest = dial(run.port);
  Opening opening;
  REQUIRE(receive(guest, &opening));
  const auto key = netdriver::keyOf(kToken, other);
  REQUIRE(give(guest, netdriver::introduce(key, netdriver::helloOf(1, 2), opening)));
  Answer answer;
  REQUIRE(receive(guest, &answer));
  CHECK(answer.verdict == Verdict::stranger);
  const Made member = run.join(kToken);
  REQUIRE(member);
  expectToWork(&run, *member);
}

TEST_CASE("bytes of no meaning are refused, and a changed introduction is, too") {
  Run run;
  SeededRandom random(11);
  for (int i = 0; i < 200; i++) {
    const Fd guest = dial(run.port);
    Opening opening;
    REQUIRE(receive(guest, &opening));
    Introduction said = netdriver::introduce(netdriver::keyOf(kToken), netdriver::helloOf(1, 2), opening);
    auto bytes = std::as_writable_bytes(std::span(&said, 1));
    if (i % 2 == 0)
      bytes[random.below(bytes.size())] ^= std::byte{1};
    else
      for (std::byte& one : bytes) one = static_cast<std::byte>(random.next());
    REQUIRE(give(guest, said));
    Answer answer;
    if (receive(guest, &answer)) CHECK(answer.verdict == Verdict::stranger);
  }
  const Made member = run.join(kToken);
  REQUIRE(member);
  expectToWork(&run, *member);
}

TEST_CASE("a rank tells nothing to a root that does not know the token") {
  auto listener = netdriver::listenLocally();
  REQUIRE(listener);
  std::thread fake([&] {
    const Fd guest(::accept(listener->fd.get(), nullptr, nullptr));
    REQUIRE(give(guest, Opening{}));
    Introduction said;
    REQUIRE(receive(guest, &said));
    Answer welcome;
    welcome.from = netdriver::helloOf(0, 2);
    REQUIRE(give(guest, welcome));  // without a proof
    Answer more;
    (void)receive(guest, &more, Milliseconds(300));
  });
  Place place;
  place.rank = 1;
  place.size = 2;
  place.port = listener->port;
  place.token = kToken;
  const Made refused = Bootstrap::create(place, kPatience);
  fake.join();
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message().find("another token") != std::string::npos);
}

TEST_CASE("a member that announces a gigabyte gets no room for it") {
  Run run;
  const Fd member = dial(run.port);
  Opening opening;
  REQUIRE(receive(member, &opening));
  const Hello hello = netdriver::helloOf(1, 2);
  REQUIRE(give(member, netdriver::introduce(netdriver::keyOf(kToken), hello, opening)));
  Answer answer;
  REQUIRE(receive(member, &answer));
  REQUIRE(answer.verdict == Verdict::welcome);
  CHECK(isProven(netdriver::keyOf(kToken), answer, hello));
  Made root = run.root.get();
  REQUIRE(root);
  const std::array<uint32_t, 2> head{1, 1U << 30};
  REQUIRE(give(member, head));
  const auto began = Clock::system().now();
  const auto values = (*root)->gatherValues(5);
  REQUIRE_FALSE(values);
  CHECK(values.error().message().find("no message of this version") != std::string::npos);
  CHECK(Clock::system().now() - began < std::chrono::seconds(10));
}

TEST_CASE("the last words of a member write no lines of their own") {
  Run run;
  const Made member = run.join(kToken);
  REQUIRE(member);
  Made root = run.root.get();
  REQUIRE(root);
  (*member)->abandon("gone\n[rank 0] \x1b]0;forged");
  const auto values = (*root)->gatherValues(5);
  REQUIRE_FALSE(values);
  CHECK(values.error().message().find('\n') == std::string::npos);
  CHECK(values.error().message().find('\x1b') == std::string::npos);
}

TEST_CASE("a run of one host listens where nobody else comes") {
  Place place;
  place.size = 2;
  place.port = 0;
  // A port that is free now; the run binds it on the loopback interface alone.
  auto listener = netdriver::listenLocally();
  REQUIRE(listener);
  place.port = listener->port;
  listener->fd.reset();
  auto root = std::async(std::launch::async, [&] { return Bootstrap::create(place, Milliseconds(1500)); });
  const auto interfaces = localInterfaces();
  REQUIRE(interfaces);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  for (const Interface& one : *interfaces)
    if (!one.loopback && !one.address.isLinkLocal())
      CHECK_FALSE(connectToOne({one.address.withPort(place.port)}, within(Milliseconds(300))));
  CHECK(connectToOne({SocketAddress::loopback(place.port)}, within(Milliseconds(300))));
  CHECK_FALSE(root.get());
}
