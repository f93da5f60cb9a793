// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/replay/plan.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <unistd.h>

#include "tests/support/catch.h"
#include "tools/replay/pattern.h"
#include "tools/trace/encoder.h"

// What is read of traces, and which are refused. The traces are two ranks' that exchange one message, written
// here; each case spoils something.
using namespace weft;
using trace::Event;
using trace::Kind;

namespace {

struct Folder {
  Folder() {
    char name[] = "/tmp/weft-trace-XXXXXX";
    path = ::mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::filesystem::path path;
};

Event event(Kind kind, std::vector<uint64_t> values, std::vector<trace::Part> parts = {}) {
  static uint64_t time = 0;
  Event one;
  one.kind = kind;
  one.time = time += 100;
  std::copy(values.begin(), values.end(), one.values.begin());
  one.parts = std::move(parts);
  return one;
}

std::string fileOf(const std::vector<Event>& events) {
  trace::Encoder encoder;
  for (const Event& one : events) encoder.add(one);
  return trace::Encoder::fileHead() + encoder.take(0);
}

struct Job {
  uint64_t sent = 100;
  uint64_t posted = 128;
  uint64_t told = 100;
  uint64_t handle = 77;
  uint64_t registered = 4096;

  std::string sender() const {
    return fileOf({event(Kind::connect, {0, 0, handle, 1}), event(Kind::regMr, {1, 1, 4096, registered, 1}),
                   event(Kind::isend, {1, 1}, {{sent, 1, 0, 3}}), event(Kind::test, {1, 1, 1}),
                   event(Kind::deregMr, {1, 1}), event(Kind::closeSend, {1})});
  }
  std::string receiver() const {
    return fileOf({event(Kind::listen, {0, 0, 1, 77}), event(Kind::accept, {1, 2}),
                   event(Kind::closeListen, {1}), event(Kind::regMr, {2, 1, 8192, 4096, 1}),
                   event(Kind::irecv, {2, 1}, {{posted, 1, 0, 3}}),
                   event(Kind::test, {2, 1, 1}, {{told, 0, 0, 0}}), event(Kind::deregMr, {2, 1}),
                   event(Kind::closeRecv, {2})});
  }
};

Result<std::unique_ptr<replay::Plan>> plan(const Folder& folder, const std::string& sender,
                                           const std::string& receiver) {
  std::ofstream(folder.path / "a.trace", std::ios::binary) << sender;
  std::ofstream(folder.path / "b.trace", std::ios::binary) << receiver;
  return replay::makePlan({folder.path.string()});
}

std::string refusal(const std::string& sender, const std::string& receiver) {
  const Folder folder;
  const auto made = plan(folder, sender, receiver);
  return made ? "taken" : made.error().message();
}

bool says(const std::string& text, const std::string& words) {
  INFO(text);
  CHECK(text.find(words) != std::string::npos);
  return text.find(words) != std::string::npos;
}

}  // namespace

TEST_CASE("two traces become one job") {
  const Folder folder;
  const Job job;
  const auto made = plan(folder, job.sender(), job.receiver());
  REQUIRE(made);
  REQUIRE((*made)->ranks.size() == 2);
  const replay::Queue& send = (*made)->ranks[0].queues.front();
  REQUIRE(send.peer != nullptr);
  CHECK(send.peer->rank == 1);
  CHECK_FALSE(send.aborted);
  const auto& isend = send.ops[2];
  const auto& irecv = send.peer->ops[1];
  CHECK(isend.messages.at(0).seed == irecv.messages.at(0).seed);
}

namespace {

std::string senderTo(uint64_t handle, uint64_t bytes, uint64_t asked, uint64_t waited) {
  Event connect = event(Kind::connect, {0, 0, handle, 1, waited > 0 ? 5U : 0U, waited});
  connect.time = asked + waited;
  const uint64_t later = connect.time;
  const auto at = [&](Event one, uint64_t after) {
    one.time = later + after;
    return one;
  };
  return fileOf({connect, at(event(Kind::regMr, {1, 1, 4096, 4096, 1}), 1),
                 at(event(Kind::isend, {1, 1}, {{bytes, 1, 0, 3}}), 2), at(event(Kind::test, {1, 1, 1}), 3),
                 at(event(Kind::closeSend, {1}), 4)});
}

// Two connections are accepted; the first brings a message of 100 bytes, the second one of 200.
std::string receiverOfTwo() {
  std::vector<Event> events = {event(Kind::listen, {0, 0, 1, 77})};
  for (const uint64_t comm : {2, 3}) {
    const uint64_t bytes = comm == 2 ? 100 : 200;
    events.push_back(event(Kind::accept, {1, comm}));
    events.push_back(event(Kind::regMr, {comm, comm, 8192, 4096, 1}));
    events.push_back(event(Kind::irecv, {comm, comm}, {{4096, comm, 0, 3}}));
    events.push_back(event(Kind::test, {comm, comm, 1}, {{bytes, 0, 0, 0}}));
    events.push_back(event(Kind::closeRecv, {comm}));
  }
  events.push_back(event(Kind::closeListen, {1}));
  return fileOf(events);
}

}  // namespace

TEST_CASE("the ends of connections through one listener are joined in the order of asking") {
  // By the time of the call that succeeded the order would be another one in the second case.
  const auto [firstAsked, firstWaited, secondAsked, secondWaited] =
      GENERATE(std::array<uint64_t, 4>{9'000, 0, 5'000, 0}, std::array<uint64_t, 4>{9'000, 0, 5'000, 7'000});
  const Folder folder;
  std::ofstream(folder.path / "c.trace", std::ios::binary) << receiverOfTwo();
  const auto made =
      plan(folder, senderTo(77, 200, firstAsked, firstWaited), senderTo(77, 100, secondAsked, secondWaited));
  INFO((made ? "" : made.error().message()));
  REQUIRE(made);
  const replay::Queue& later = (*made)->ranks[0].queues.front();
  const replay::Queue& earlier = (*made)->ranks[1].queues.front();
  REQUIRE(later.peer != nullptr);
  REQUIRE(earlier.peer != nullptr);
  CHECK(earlier.peer->number == 2);
  CHECK(later.peer->number == 3);
}

TEST_CASE("traces that contradict each other are refused in words") {
  Job job;
  SECTION("more is sent than fits") {
    job.sent = 200;
    job.told = 128;
    says(refusal(job.sender(), job.receiver()), "200 bytes are sent into a receive of 128");
  }
  SECTION("something else arrived than was sent") {
    job.told = 99;
    says(refusal(job.sender(), job.receiver()), "100 bytes were sent and 99 received");
  }
  SECTION("nobody listens") {
    job.handle = 78;
    says(refusal(job.sender(), job.receiver()), "a listener that is in no trace");
  }
  SECTION("memory that was not registered") {
    job.registered = 50;
    says(refusal(job.sender(), job.receiver()), "outside of registration 1");
  }
  SECTION("the same trace twice") {
    says(refusal(job.receiver(), job.receiver()), "the same handle");
  }
}

TEST_CASE("what is no whole trace") {
  const Job job;
  const Folder folder;
  const std::string whole = job.sender();
  SECTION("cut off within its last block: dropped and told") {
    const std::string cut = whole.substr(0, whole.size() - 3);
    const auto bytes = std::as_bytes(std::span(cut.data(), cut.size()));
    const auto trace = trace::parseTrace("cut", {bytes.begin(), bytes.end()});
    REQUIRE(trace);
    CHECK(trace->events.empty());
    REQUIRE(trace->notes.size() == 1);
    says(trace->notes[0], "was dropped");
  }
  SECTION("a newer version") {
    std::string newer = whole;
    newer[8] = 2;
    says(refusal(newer, job.receiver()), "version 2");
  }
  SECTION("damage") {
    std::string damaged = whole;
    damaged[whole.size() - 2] = static_cast<char>(damaged[whole.size() - 2] ^ 1);
    says(refusal(damaged, job.receiver()), "wrong checksum");
  }
  SECTION("something else") {
    says(refusal("#!/bin/sh\n", job.receiver()), "is no trace");
  }
  SECTION("an empty folder") {
    const auto made = replay::makePlan({folder.path.string()});
    REQUIRE_FALSE(made);
    says(made.error().message(), "no file in this folder ends in .trace");
  }
}

namespace {

// A rank of a group of two that reduces once.
struct Member {
  uint64_t place = 0;
  uint64_t bytes = 400;
  uint64_t ranks = 2;
  uint64_t reduction = 0;

  std::string file() const {
    return fileOf(
        {event(Kind::collListen, {0, 0, 1, 50 + place}), event(Kind::collConnect, {1, 2, place, ranks, 99}),
         event(Kind::closeListen, {1}), event(Kind::regMr, {2, 1, 4096, 4096, 1}),
         event(Kind::iallreduce, {2, 1, 0, 0, 7, reduction}, {{bytes, 1, 0, 0}, {bytes, 1, 1000, 0}}),
         event(Kind::test, {2, 1, 1}, {{bytes, 0, 0, 0}}), event(Kind::deregMr, {2, 1}),
         event(Kind::closeColl, {2})});
  }
};

}  // namespace

TEST_CASE("the ranks of a collective operation belong together") {
  const Folder folder;
  const auto made = plan(folder, Member{0}.file(), Member{1}.file());
  REQUIRE(made);
  const replay::Queue& group = (*made)->ranks[0].queues.back();
  REQUIRE(group.kind == replay::QueueKind::coll);
  REQUIRE(group.members.size() == 2);
  CHECK(group.members[0] == &group);
  CHECK(group.members[1]->rank == 1);
  CHECK_FALSE(group.aborted);
  CHECK(group.ops[2].messages.at(0).number == 0);
}

TEST_CASE("groups that contradict each other are refused in words") {
  Member second{1};
  SECTION("another size") {
    second.bytes = 404;
    says(refusal(Member{0}.file(), second.file()), "404 B, and another rank's iallreduce");
  }
  SECTION("another reduction") {
    second.reduction = 2;
    says(refusal(Member{0}.file(), second.file()), "the traces do not belong together");
  }
  SECTION("the same rank twice") {
    second.place = 0;
    says(refusal(Member{0}.file(), second.file()), "of a group that does not fit");
  }
  SECTION("a rank that is missing") {
    says(refusal(Member{0, 400, 3}.file(), Member{1, 400, 3}.file()), "give the traces of all ranks");
  }
}

namespace {

// A rank of two that put into each other's second window; the first one has a word for each rank's signals.
struct OneSided {
  uint64_t offset = 128;  // in the other rank's window
  uint64_t bytes = 100;
  uint64_t source = 512;
  uint64_t got = 4000;  // where bytes of the other rank's are got to, before the puts

  std::string rank(uint64_t number) const {
    const uint64_t other = 1 - number;
    return fileOf({event(Kind::rmaInit, {1, 5, 14}), event(Kind::rmaListen, {1, 0, 1, number}),
                   event(Kind::rmaConnect, {1, 2, number, 2, 99}), event(Kind::closeListen, {1}),
                   event(Kind::createContext, {2, 7, 1}), event(Kind::regMrSym, {2, 1, 4096, 16, 1, 3}),
                   event(Kind::regMrSym, {2, 2, 8192, 4096, 1}),
                   event(Kind::iget, {2, 3, 0, other}, {{64, 2, got, 0}, {64, 2, 3000, 0}}),
                   event(Kind::test, {2, 3, 1}),
                   event(Kind::iput, {2, 1, 0, other}, {{64, 2, source, 0}, {64, 2, 0, 0}}),
                   event(Kind::iputSignal, {2, 2, 0, other, 0, 1, number * 8, 3, 1},
                         {{bytes, 2, 1024, 0}, {bytes, 2, offset, 0}}),
                   event(Kind::test, {2, 1, 1}), event(Kind::test, {2, 2, 1}), event(Kind::deregMr, {2, 2}),
                   event(Kind::destroyContext, {2, 7}), event(Kind::deregMr, {2, 1}),
                   event(Kind::closeColl, {2}), event(Kind::rmaFinalize, {1})});
  }
};

const replay::Queue& groupOf(const replay::RankPlan& rank) {
  return *std::find_if(rank.queues.begin(), rank.queues.end(),
                       [](const replay::Queue& queue) { return queue.kind == replay::QueueKind::rma; });
}

}  // namespace

TEST_CASE("a window holds what other ranks put there once their signals say so") {
  const Folder folder;
  const OneSided job;
  const auto made = plan(folder, job.rank(0), job.rank(1));
  REQUIRE(made);
  const replay::Queue& group = groupOf((*made)->ranks[1]);
  REQUIRE(group.members.size() == 2);
  CHECK_FALSE(group.aborted);
  const replay::Landing& landing = group.landings.at(2);
  CHECK(landing.certain);
  CHECK(landing.words == std::map<std::pair<uint64_t, uint64_t>, uint64_t>{{{1, 0}, 3}});
  REQUIRE(landing.puts.size() == 2);
  CHECK(landing.puts[0].offset == 0);
  CHECK(landing.puts[1].offset == 128);
  CHECK(landing.puts[1].seeds.at(0) == groupOf((*made)->ranks[0]).ops[7].messages.at(0).seed);
  CHECK(landing.puts[0].seeds != landing.puts[1].seeds);
  CHECK(group.landings.at(0).words.size() == 1);
}

TEST_CASE("a put is compared where nothing else went to its place, or came to where it is from") {
  const Folder folder;
  OneSided job;
  SECTION("two puts of the same rank lie over each other, without an order") {
    job.offset = 32;
    const auto made = plan(folder, job.rank(0), job.rank(1));
    REQUIRE(made);
    CHECK(groupOf((*made)->ranks[1]).landings.at(2).puts.empty());
  }
  SECTION("or to the very same place: either of them may be the last") {
    job.offset = 0;
    job.bytes = 64;
    const auto made = plan(folder, job.rank(0), job.rank(1));
    REQUIRE(made);
    const replay::Landing& landing = groupOf((*made)->ranks[1]).landings.at(2);
    REQUIRE(landing.puts.size() == 1);
    CHECK(landing.puts[0].seeds.size() == 2);
  }
  SECTION("the other rank puts to where the first one is from") {
    job.source = 32;
    const auto made = plan(folder, job.rank(0), job.rank(1));
    REQUIRE(made);
    REQUIRE(groupOf((*made)->ranks[1]).landings.at(2).puts.size() == 1);
    CHECK(groupOf((*made)->ranks[1]).landings.at(2).puts[0].offset == 128);
  }
}

// In the job the rank had waited for the signal of that put; a trace has no waits.
TEST_CASE("a get comes behind the window where the other rank puts to the same place") {
  const Folder folder;
  OneSided job;
  const auto getOf = [](const replay::RankPlan& rank) {
    const auto& ops = groupOf(rank).ops;
    return *std::find_if(ops.begin(), ops.end(),
                         [](const replay::Op& op) { return op.event->kind == Kind::iget; });
  };
  SECTION("nothing else goes there") {
    const auto made = plan(folder, job.rank(0), job.rank(1));
    REQUIRE(made);
    CHECK(getOf((*made)->ranks[1]).aside == 0);
    CHECK((*made)->ranks[1].memories.at(2).aside == 0);
  }
  SECTION("the last byte of a put does") {
    job.got = 63;
    const auto made = plan(folder, job.rank(0), job.rank(1));
    REQUIRE(made);
    CHECK(getOf((*made)->ranks[1]).aside == 4096);
    CHECK((*made)->ranks[1].memories.at(2).aside == 4096);
    CHECK(groupOf((*made)->ranks[1]).landings.at(2).puts.size() == 2);  // and those are compared now
  }
}

TEST_CASE("a put outside of the other rank's window is refused") {
  OneSided job;
  job.offset = 4096 - 100;
  CHECK(says(refusal(job.rank(0), job.rank(1)), "taken"));
  job.offset++;
  CHECK(says(refusal(job.rank(0), job.rank(1)), "reaches outside of the other rank's window"));
}

TEST_CASE("what several messages left in one place may change at any byte, and has no byte of another") {
  const std::vector<uint64_t> seeds = {replay::seedOf(1, 2, 3), replay::seedOf(1, 2, 4)};
  std::vector<std::byte> first(100), second(100);
  replay::fill(seeds[0], first);
  replay::fill(seeds[1], second);
  CHECK_FALSE(replay::firstOfNone(seeds, first));
  CHECK_FALSE(replay::firstOfNone(seeds, second));
  for (const size_t cut : {1, 43, 48, 99}) {
    std::vector<std::byte> mixed = first;
    std::copy(second.begin() + static_cast<ptrdiff_t>(cut), second.end(),
              mixed.begin() + static_cast<ptrdiff_t>(cut));
    CHECK_FALSE(replay::firstOfNone(seeds, mixed));
    std::byte wrong = mixed[cut];
    while (wrong == first[cut] || wrong == second[cut])
      wrong = static_cast<std::byte>(static_cast<int>(wrong) + 1);
    mixed[cut] = wrong;
    CHECK(replay::firstOfNone(seeds, mixed) == cut);
    CHECK(replay::firstOfNone(std::span(seeds).first(1), mixed) == cut);
  }
}
