// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <regex>

#include "src/core/runtime.h"
#include "tests/protocol/kept_log.h"
#include "tests/support/catch.h"
#include "tests/support/engine_pair.h"

// Ranks that call different things: one receives with tag 7, the other sends with tag 8. Nothing is broken,
// so nothing ends; each side says once what it waits for.
using namespace weft;
using namespace weft::core;
using namespace weft::test;

namespace {

size_t countOf(const std::string& text, const std::string& piece) {
  size_t count = 0;
  for (size_t at = text.find(piece); at != std::string::npos; at = text.find(piece, at + 1)) count++;
  return count;
}

struct Mismatch {
  World world;
  Connection link;
  Buffer from, to;
  size_t bytes;
  Request* sent = nullptr;
  Request* received = nullptr;

  explicit Mismatch(size_t size, Config config = configOfTests())
      : world({config}), link(world.connect(0)), from(*link.send, size), to(*link.recv, size), bytes(size) {}

  void receive(int tag) {
    const ReceiveSpec spec{to.data(), bytes, tag, to.handle(), nullptr};
    received = link.recv->irecv(std::span(&spec, 1)).request;
    REQUIRE(received);
  }
  // The message that the receive waits for.
  void deliver(int tag) {
    for (int i = 0; i < 8 && !sent; i++) {
      sent = link.send->isend(from.data(), bytes, tag, from.handle(), nullptr).request;
      world.pump(2);
    }
    REQUIRE(sent);
    world.pump(8);
    CHECK(link.recv->testRequest(received, nullptr).done);
    CHECK(link.send->testRequest(sent, nullptr).done);
    world.watch(0);
    world.watch(1);
    sent = received = nullptr;
  }
  // As NCCL's threads would: the send is tried again and again, the receive is asked after.
  void run(Milliseconds time, int tag) {
    for (Milliseconds passed{0}; passed < time; passed += Milliseconds(250)) {
      if (!sent) sent = link.send->isend(from.data(), bytes, tag, from.handle(), nullptr).request;
      if (received) (void)link.recv->testRequest(received, nullptr);
      world.pump(2);
      world.clock().advance(Milliseconds(250));
      world.watch(0);
      world.watch(1);
    }
  }
};

}  // namespace

TEST_CASE("a receive and a send of different tags are each told once") {
  Mismatch ranks(100'000);
  ranks.receive(7);
  const KeptLog log;
  ranks.run(Milliseconds(9'000), 8);
  CHECK(log.text().empty());
  ranks.run(Milliseconds(60'000), 8);
  INFO(log.text());
  CHECK(countOf(log.text(), "NCCL has waited for ") == 2);
  CHECK(std::regex_search(log.text(),
                          std::regex("NCCL has waited for 1[0-2] s on loop0: receive with tag 7 of up to "
                                     "100000 bytes on comm [0-9]+ from node0 pid 1000 \\(message 0 of the "
                                     "tag\\): the peer has not sent it; verdict: node0 pid 1000 is late: ")));
  CHECK(std::regex_search(
      log.text(), std::regex("NCCL has waited for 1[0-2] s on loop0: send with tag 8 of 100000 bytes "
                             "on comm [0-9]+ to node1 pid 1001 \\(message 0 of the tag\\): the peer "
                             "has told of no receive with this tag; the peer waits for tag 7; "
                             "verdict: this rank and node1 pid 1001 are in different collectives: ")));
  CHECK_FALSE(ranks.link.send->failed());
  CHECK_FALSE(ranks.link.recv->failed());
}

TEST_CASE("a small message left already, and the receiver names it") {
  Mismatch ranks(8);
  ranks.receive(7);
  const KeptLog log;
  ranks.run(Milliseconds(12'500), 8);
  INFO(log.text());
  REQUIRE(ranks.sent);
  CHECK(countOf(log.text(), "NCCL has waited for ") == 1);
  CHECK(log.text().find("receive with tag 7 of up to 8 bytes") != std::string::npos);
  CHECK(log.text().find(
            "; here is a message that nobody receives, with tag 8; verdict: this rank and node0 pid "
            "1000 are in different collectives: message 0 of tag 7 is wanted here, and ") !=
        std::string::npos);
}

TEST_CASE("what comes after all is told too, and a later wait anew") {
  Config config = configOfTests();
  config.waitWarn = Milliseconds(10'000);
  Mismatch ranks(100'000, config);
  ranks.receive(8);
  const KeptLog log;
  ranks.run(Milliseconds(0), 8);
  for (Milliseconds passed{0}; passed < Milliseconds(12'000); passed += Milliseconds(250)) {
    ranks.world.pump();
    ranks.world.clock().advance(Milliseconds(250));
    ranks.world.watch(1);
  }
  CHECK(countOf(log.text(), "NCCL has waited for ") == 1);
  ranks.run(Milliseconds(3'000), 8);
  INFO(log.text());
  CHECK(countOf(log.text(), "all waits that a warning named are over") == 1);
  ranks.receive(9);
  ranks.run(Milliseconds(9'000), 9);
  CHECK(countOf(log.text(), "NCCL has waited for ") == 1);
  ranks.run(Milliseconds(4'000), 9);
  CHECK(countOf(log.text(), "NCCL has waited for ") == 2);
}

TEST_CASE("nothing is told of a peer that does not answer, nor where the setting is 0") {
  Config config = configOfTests();
  const bool silent = GENERATE(false, true);
  if (!silent) config.waitWarn = Milliseconds(0);
  Mismatch ranks(100'000, config);
  ranks.receive(7);
  if (silent) ranks.world.side(0).other->answering = ranks.world.side(1).other->answering = false;
  const KeptLog log;
  ranks.run(Milliseconds(30'000), 8);
  CHECK(log.text().find("NCCL has waited") == std::string::npos);
  // The operator is told nevertheless.
  for (const int side : {0, 1}) {
    const std::string state = ranks.world.side(side).runtime->stateText();
    INFO(state);
    CHECK(std::regex_search(state, std::regex("waits for (28|29|30) s: (send|receive) with tag ")));
    CHECK(countOf(state, ", and its process does not answer\n") == (silent ? 1 : 0));
  }
}

TEST_CASE("a wait counts anew for the warning when the peer answers again") {
  Mismatch ranks(100'000);
  ranks.receive(7);
  ranks.world.side(1).other->answering = false;
  const KeptLog log;
  ranks.run(Milliseconds(30'000), 8);
  ranks.world.side(1).other->answering = true;
  ranks.run(Milliseconds(9'000), 8);
  CHECK(log.text().find("receive with tag 7") == std::string::npos);
}

// Derived limits:

TEST_CASE("a wait is worth a warning by what was usual before") {
  Mismatch ranks(100'000);
  const KeptLog log;
  const auto pause = [&](Milliseconds time) {  // of the sender, then its message comes
    ranks.receive(1);
    ranks.sent = nullptr;
    for (Milliseconds passed{0}; passed < time; passed += Milliseconds(250)) {
      ranks.world.clock().advance(Milliseconds(250));
      ranks.world.pump(2);
      ranks.world.watch(1);
    }
    ranks.deliver(1);
  };
  const auto warnings = [&] { return countOf(log.text(), "NCCL has waited for "); };
  pause(Milliseconds(8'000));  // ranks begin at different times
  CHECK(warnings() == 0);
  pause(Milliseconds(20'000));  // that was 8 s before
  CHECK(warnings() == 0);
  for (int i = 0; i < 16; i++) pause(Milliseconds(500));  // what is long ago is forgotten
  pause(Milliseconds(2'500));
  CHECK(warnings() == 0);
  pause(Milliseconds(9'000));
  CHECK(warnings() == 0);  // 4 times 2.5 s
  for (int i = 0; i < 16; i++) pause(Milliseconds(500));
  pause(Milliseconds(5'000));
  INFO(log.text());
  CHECK(warnings() == 1);
  CHECK(log.text().find("NCCL has waited for 3 s on ") != std::string::npos);
}

TEST_CASE("an end that its peer waits for, and that waits for nobody, says that it is late") {
  Mismatch ranks(100'000);
  ranks.receive(1);
  ranks.deliver(1);
  ranks.receive(1);
  const KeptLog log;
  const auto pass = [&](Milliseconds time) {
    for (Milliseconds passed{0}; passed < time; passed += Milliseconds(250)) {
      ranks.world.clock().advance(Milliseconds(250));
      ranks.world.pump(2);
      ranks.world.watch(0);
    }
  };
  pass(Milliseconds(2'500));
  CHECK(log.text().empty());
  pass(Milliseconds(20'000));
  INFO(log.text());
  CHECK(countOf(log.text(), "node1 pid 1001 has posted a receive for message 1 of tag 1 on comm ") == 1);
  CHECK(countOf(log.text(), "; verdict: this rank is late: it waits for nobody, ") == 1);
}

TEST_CASE("a peer hears for whom a process waits, and names it in place of the one that waits itself") {
  Mismatch ranks(100'000);
  ranks.receive(1);
  const auto pass = [&](Milliseconds time) {
    for (Milliseconds passed{0}; passed < time; passed += Milliseconds(250)) {
      ranks.world.clock().advance(Milliseconds(250));
      ranks.world.pump(2);
      ranks.world.watch(1);
    }
    ranks.world.pump(2);
  };
  const Culprit& heard = ranks.link.send->peering().waitsFor();
  pass(Milliseconds(1'000));
  CHECK(heard.name.empty());
  pass(Milliseconds(2'000));
  CHECK(heard == Culprit{"node0 pid 1000", 0});
  ranks.link.recv->peering().hearWait({"rank 5 on node5 pid 5", 0});
  pass(Milliseconds(1'000));
  CHECK(heard == Culprit{"rank 5 on node5 pid 5", 0});
  const KeptLog log;
  pass(Milliseconds(12'000));
  INFO(log.text());
  CHECK(log.text().find(
            "verdict: rank 5 on node5 pid 5: the waits lead there, also that of node0 pid 1000; ") !=
        std::string::npos);
  ranks.deliver(1);
  pass(Milliseconds(1'000));
  CHECK(heard.name.empty());
}

TEST_CASE("an end whose peer's receives may stand is never late") {
  Mismatch ranks(100'000);
  ranks.link.send->mayStand();
  ranks.receive(1);
  const KeptLog log;
  for (int i = 0; i < 100; i++) {
    ranks.world.clock().advance(Milliseconds(250));
    ranks.world.pump(2);
    ranks.world.watch(0);
  }
  CHECK(log.text().empty());
}

TEST_CASE("the state of a process names its comms and what they wait for") {
  Mismatch ranks(100'000);
  ranks.receive(7);
  ranks.run(Milliseconds(3'000), 8);
  const std::string receiver = ranks.world.side(1).runtime->stateText();
  INFO(receiver);
  CHECK(std::regex_search(
      receiver, std::regex("to node0 pid 1000: live, 1 of 1 lanes up on rail loop0, the process answers\n")));
  CHECK(std::regex_search(receiver,
                          std::regex("comm [0-9]+ receives from node0 pid 1000: live, 0 messages so far\n"
                                     "    waits for [23] s: receive with tag 7 ")));
  const std::string sender = ranks.world.side(0).runtime->stateText();
  INFO(sender);
  CHECK(std::regex_search(sender, std::regex("waits for [23] s: send with tag 8 of 100000 bytes ")));
  CHECK(sender.find("the peer waits for tag 7: 1 receives\n") != std::string::npos);
}
