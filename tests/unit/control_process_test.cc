// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/unit/control_process.h"

#include "src/base/log.h"
#include "tests/unit/control_support.h"

using namespace weft;
using namespace weft::control;
using Clk = std::chrono::steady_clock;

namespace {

constexpr const char* kPeerProgram = CONTROL_PEER;

PeerRef connectTo(Side& side, const Handle& handle) {
  auto call = side.hub->call(handle, {});
  REQUIRE(decided(*call));
  REQUIRE(call->state() == Call::State::replied);
  return call->peer();
}

milliseconds since(Clk::time_point start) {
  return std::chrono::duration_cast<milliseconds>(Clk::now() - start);
}

}  // namespace

TEST_CASE("a killed peer is dead within a second, also when the link was idle") {
  Side a;
  ChildProcess child({kPeerProgram, "=lo"});
  const PeerRef peer = connectTo(a, child.readHandle());
  const std::string pid = "pid " + std::to_string(child.pid());
  CHECK(peer->name().find(pid) != std::string::npos);
  const auto start = Clk::now();
  child.kill();
  REQUIRE(eventually([&] { return !peer->alive(); }));
  CHECK(since(start) < milliseconds(1000));
  CHECK(peer->reason().message().find(pid) != std::string::npos);
  CHECK(peer->reason().code() == Code::remote);
}

TEST_CASE("a call to a killed process is refused at once") {
  Side a;
  ChildProcess child({kPeerProgram, "=lo"});
  const Handle handle = child.readHandle();
  child.kill();
  const auto start = Clk::now();
  auto call = a.hub->call(handle, {});
  REQUIRE(decided(*call));
  CHECK(call->state() == Call::State::failed);
  CHECK(since(start) < milliseconds(1000));
}

TEST_CASE("a peer stopped for three seconds loses nothing and is not even reported") {
  const WarningCatcher log;
  Side a;
  ChildProcess child({kPeerProgram, "=lo"});
  const PeerRef peer = connectTo(a, child.readHandle());
  child.stop();
  const auto start = Clk::now();
  constexpr size_t kCount = 200;
  for (size_t i = 0; i < kCount; i++) peer->send(16, Bytes(i * 300, std::byte(i)));
  // The bounds of a silent kernel pass: a stopped process's kernel still answers.
  REQUIRE(eventually([&] { return since(start) >= milliseconds(3200) || !peer->alive(); }));
  CHECK(peer->alive());
  CHECK_FALSE(peer->answers());
  CHECK(a.heard->count() == 0);
  child.signal(SIGCONT);
  REQUIRE(eventually([&] { return a.heard->count() == kCount; }));
  const auto messages = a.heard->messages();
  for (size_t i = 0; i < kCount; i++) CHECK(messages[i].body == Bytes(i * 300, std::byte(i)));
  REQUIRE(eventually([&] { return peer->answers(); }));
  CHECK(log.warnings().empty());
}

TEST_CASE("a peer that stays stopped is reported once and then given up") {
  const WarningCatcher log;
  Config config;
  config.peerSilentWarn = Milliseconds(200);
  config.peerTimeout = Milliseconds(900);
  Side a(config);
  ChildProcess child({kPeerProgram, "=lo"});
  const PeerRef peer = connectTo(a, child.readHandle());
  const auto start = Clk::now();
  child.stop();
  REQUIRE(eventually([&] { return !log.warnings().empty(); }));
  CHECK(since(start) < milliseconds(600));
  CHECK(peer->alive());
  REQUIRE(eventually([&] { return !peer->alive(); }));
  CHECK(since(start) >= milliseconds(800));
  CHECK(since(start) < milliseconds(2500));
  CHECK(peer->reason().code() == Code::timeout);
  REQUIRE(log.warnings().size() == 1);
  CHECK(log.warnings()[0].find("pid " + std::to_string(child.pid())) != std::string::npos);
}

TEST_CASE("a stopped peer with a full socket is not mistaken for a silent host") {
  const WarningCatcher log;
  Config config;
  config.kernelTimeout = Milliseconds(300);
  Side a(config);
  ChildProcess child({kPeerProgram, "=lo"});
  const PeerRef peer = connectTo(a, child.readHandle());
  child.stop();
  constexpr size_t kCount = 300;
  for (size_t i = 0; i < kCount; i++) peer->send(16, Bytes(64 * 1024, std::byte(i)));
  const auto start = Clk::now();
  REQUIRE(eventually([&] { return since(start) >= milliseconds(1500) || !peer->alive(); }));
  CHECK(peer->alive());
  child.signal(SIGCONT);
  REQUIRE(eventually([&] { return a.heard->count() == kCount; }, milliseconds(20000)));
  CHECK(peer->alive());
}
