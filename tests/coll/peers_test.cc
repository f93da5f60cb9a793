// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <array>
#include <chrono>
#include <thread>

#include "providers/fault/control.h"
#include "providers/fault/transport.h"
#include "providers/loop/transport.h"
#include "src/coll/offload.h"
#include "src/coll/peers.h"
#include "src/coll/ring.h"
#include "tests/coll/scenarios.h"
#include "tests/support/catch.h"
#include "tests/support/patience.h"

// Collective operations that the ranks share among themselves, over the loop provider.
using namespace weft;
using namespace weft::coll;
using namespace weft::test;

namespace {

std::unique_ptr<Group> makePeers(int, std::unique_ptr<Mesh> mesh) {
  const Mesh& all = *mesh;
  return ringOf(all, std::make_unique<PeersBackend>(std::move(mesh), PeersOptions()));
}

}  // namespace

TEST_CASE("peers: every size of vector comes out right on every rank") {
  for (const int count : {1, 2, 3, 8}) {
    INFO(count << " ranks");
    Ranks ranks(count);
    ranks.form(makePeers);
    checkSizes(ranks);
  }
}

TEST_CASE("peers: every type and operation") {
  Ranks ranks(3);
  ranks.form(makePeers);
  checkTypes(ranks);
}

TEST_CASE("peers: windows that touch all ranks, some or a few bytes of one") {
  Ranks ranks(4);
  ranks.form(makePeers);
  checkWindows(ranks);
}

TEST_CASE("peers: eight operations at once, ranks that are ahead of others") {
  Ranks ranks(4);
  ranks.form(makePeers);
  checkManyAtOnce(ranks, 10);
}

TEST_CASE("peers: a result in place does not reach others as what its rank brings in") {
  Config config;
  config.eagerMaxBytes = 0;
  loop::LoopOptions fabric;
  fabric.landing = loop::Landing::whenPolled;  // a write is read when its receiver looks
  Ranks ranks(4, config, [&](int) { return loop::makeTransport(fabric); });
  ranks.form(makePeers);
  for (const size_t bytes : {8, 2048, 100'000}) {
    for (uint64_t round = 0; round < 20; round++) {
      Run run(ranks, allReduce(bytes, ElementType::i32), 7);
      Run inPlace(ranks, allReduce(bytes, ElementType::i32), 7);
      for (int rank = 0; rank < ranks.count(); rank++) inPlace.reduceInPlace(rank);
      SeededRandom random(round);
      run.finish(random);
      inPlace.finish(random);
      for (int rank = 0; rank < ranks.count(); rank++) REQUIRE(inPlace.sent(rank) == run.result(rank));
    }
  }
}

TEST_CASE("peers: a rank that does not come is named, and no other one") {
  Ranks ranks(4);
  std::array<std::string, 4> why;
  ranks.each([&](int rank) {
    if (rank == 2) return;
    MeshOptions options = ranks.meshOptions(rank);
    options.timeout = Milliseconds(500 * patience());
    const auto mesh = Mesh::open(std::move(options));
    if (!mesh) why[static_cast<size_t>(rank)] = mesh.error().message();
  });
  for (const size_t rank : {0, 1, 3}) CHECK(why[rank].find("rank 2 does not answer") != std::string::npos);
}

TEST_CASE(
    "peers: a rank that is lost before the group is formed is named to all, though only rank 0 misses it") {
  Config config;
  config.collnet = "peers";
  config.collnetTimeout = Milliseconds(1500 * patience());
  Ranks ranks(4, config);
  std::array<std::string, 4> why;
  ranks.each([&](int rank) {
    if (rank == 2) return;
    if (const auto group = openGroup(ranks.meshOptions(rank)); !group)
      why[static_cast<size_t>(rank)] = group.error().message();
  });
  for (const size_t rank : {0, 1, 3}) {
    INFO(why[rank]);
    CHECK(why[rank].find("rank 2: does not answer") != std::string::npos);
  }
}

TEST_CASE("peers: bits do not depend on who comes first") {
  Ranks ranks(5);
  ranks.form(makePeers);
  std::vector<std::byte> first;
  for (uint64_t round = 0; round < 20; round++) {
    Operation shape = allReduce(40000);
    shape.kind = OperationKind::allReduce;
    shape.type = ElementType::bf16;
    Run run(ranks, shape, 77);
    SeededRandom random(round);
    run.finish(random);
    for (int rank = 0; rank < ranks.count(); rank++) {
      if (first.empty()) first = run.result(rank);
      REQUIRE(run.result(rank) == first);
    }
  }
}

TEST_CASE("peers: ranks that disagree about the size all hear why it ends") {
  Ranks ranks(3);
  ranks.form(makePeers);
  std::vector<std::unique_ptr<Vectors>> data;
  for (int rank = 0; rank < 3; rank++) data.push_back(std::make_unique<Vectors>(ranks.group(rank), 9000, 1));
  std::vector<GroupRequest*> requests(3);
  std::vector<std::string> failures(3);
  for (int pass = 0; pass < 200000; pass++) {
    for (int rank = 0; rank < 3; rank++) {
      const auto r = static_cast<size_t>(rank);
      if (!failures[r].empty()) continue;
      Operation operation = allReduce(rank == 1 ? 9000 : 6000);
      operation.send = data[r]->send.data();
      operation.receive = data[r]->receive.data();
      operation.sendMemory = data[r]->sendMemory;
      operation.receiveMemory = data[r]->receiveMemory;
      bool fine = true;
      if (!requests[r]) {
        const Started started = ranks.group(rank).start(operation);
        requests[r] = started.request;
        fine = started.ok;
      } else {
        fine = ranks.group(rank).test(requests[r]).ok;
      }
      if (!fine) failures[r] = ranks.group(rank).error().message();
    }
  }
  // The rank that meets it first, and at which of its messages, is left to chance.
  for (const std::string& failure : failures) {
    INFO(failure);
    const bool disagree = failure.find("the ranks disagree about the operation") != std::string::npos;
    const bool tooLong = failure.find("bytes sent by") != std::string::npos &&
                         failure.find("to a receive of") != std::string::npos;
    CHECK((disagree || tooLong));
  }
}

// The others look for a goodbye now and then only: each number of passes before the end is tried.
TEST_CASE("peers: a rank that leaves with its results takes nothing from the others") {
  for (int waits = 0; waits < 256; waits++) {
    Ranks ranks(3);
    ranks.form(makePeers);
    Run run(ranks, allReduce(20'000), static_cast<uint64_t>(waits));
    for (int pass = 0; pass <= waits; pass++)
      for (const int rank : {0, 1}) run.step(rank);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10 * patience());
    while (!run.step(2)) {
      for (const int rank : {0, 1})
        if (!run.done(2)) run.step(rank);
      REQUIRE(std::chrono::steady_clock::now() < limit);
    }
    run.forget(2);
    std::thread leaving([&] { ranks.drop(2); });
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    for (bool going = true; going && std::chrono::steady_clock::now() < limit;) {
      const bool first = run.step(0), second = run.step(1);
      going = !first || !second;
    }
    for (const int rank : {0, 1}) {
      INFO(run.failure(rank).value_or(""));
      CHECK(run.done(rank));
      CHECK_FALSE(run.failure(rank));
    }
    for (const int rank : {0, 1}) run.forget(rank);
    ranks.each([&](int rank) {
      if (rank != 2) ranks.drop(rank);
    });
    leaving.join();
  }
}

TEST_CASE("peers: a rank that goes while others wait is named by all of them") {
  Ranks ranks(4);
  ranks.form(makePeers);
  Run run(ranks, allReduce(100000), 1);
  for (int pass = 0; pass < 1000; pass++)
    for (const int rank : {0, 1, 3}) run.step(rank);
  for (const int rank : {0, 1, 3}) REQUIRE_FALSE(run.done(rank));
  // Event: rank 2 closes without having started it. Expect: within a second all others say so.
  run.leave(2);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(patience());
  for (const int rank : {0, 1, 3})
    while (!run.step(rank)) REQUIRE(std::chrono::steady_clock::now() < limit);
  for (const int rank : {0, 1, 3})
    CHECK(run.failure(rank).value_or("").find("rank 2 left the group") != std::string::npos);
}

TEST_CASE("peers: memory of a GPU is refused with a reason") {
  Ranks ranks(1);
  ranks.form(makePeers);
  std::byte byte{};
  MemoryDesc desc;
  desc.address = &byte;
  desc.length = 1;
  desc.kind = MemoryKind::cuda;
  const auto refused = ranks.group(0).registerMemory(desc);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message().find("host memory") != std::string::npos);
}

TEST_CASE("peers: memory that a rank cannot register to reduce in is told to all of them") {
  std::shared_ptr<fault::FaultControl> control;
  Ranks ranks(3, {}, [&](int rank) -> std::unique_ptr<Transport> {
    auto transport = fault::makeTransport(loop::makeTransport({}));
    if (rank == 1) control = transport->control();
    return transport;
  });
  ranks.form(makePeers);
  Run run(ranks, allReduce(100'000), 1);
  fault::FaultRule refuses;
  refuses.kind = fault::FaultKind::registerMemory;
  refuses.op = fault::FaultOp::call;
  refuses.count = 0;
  control->add(refuses);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10 * patience());
  for (const int rank : {1, 0, 2})
    while (!run.step(rank)) {
      for (const int other : {0, 1, 2}) run.step(other);
      REQUIRE(std::chrono::steady_clock::now() < limit);
    }
  for (const int rank : {0, 1, 2}) {
    INFO(run.failure(rank).value_or(""));
    CHECK(run.failure(rank).value_or("").find("rank 1 failed: memory to reduce in") != std::string::npos);
  }
}

namespace {

// Two ranks that are connected, and between which nothing leaves before it is waited for.
struct Pair {
  Pair() : ranks(2, config()) {
    ranks.each([&](int rank) {
      if (auto mesh = Mesh::open(ranks.meshOptions(rank))) meshes[static_cast<size_t>(rank)] = mesh.take();
    });
    REQUIRE((meshes[0] && meshes[1]));
  }
  static Config config() {
    Config config;
    config.eagerMaxBytes = 0;
    return config;
  }
  Pipe& pipe(int rank) { return *meshes[static_cast<size_t>(rank)]->pipe(1 - rank); }
  Patience patient(Milliseconds time) { return {meshes[0]->clock(), time}; }

  Ranks ranks;
  std::array<std::unique_ptr<Mesh>, 2> meshes;
};

}  // namespace

TEST_CASE("peers: an alarm goes by the control link, comes before the goodbye, and stays heard") {
  Pair pair;
  pair.pipe(0).fail("a reason");
  pair.pipe(0).close();
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(5 * patience());
  while (pair.pipe(1).look() == Pipe::State::open && std::chrono::steady_clock::now() < limit)
    std::this_thread::yield();
  // Expect: each that asks hears it, not only the first one.
  for (int asked = 0; asked < 3; asked++) {
    REQUIRE(pair.pipe(1).look() == Pipe::State::alarmed);
    CHECK(pair.pipe(1).alarm() == "a reason");
  }
}

TEST_CASE("peers: a connection that is closed is a goodbye") {
  Pair pair;
  CHECK(pair.pipe(1).look() == Pipe::State::open);
  pair.pipe(0).close();
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(5 * patience());
  while (pair.pipe(1).look() != Pipe::State::left) REQUIRE(std::chrono::steady_clock::now() < limit);
}

TEST_CASE("peers: a message whose patience ended is not overwritten by the next one") {
  Pair pair;
  Bytes first(1000, std::byte{1}), second(1000, std::byte{2});
  Patience none = pair.patient(Milliseconds(0));
  CHECK_FALSE(pair.pipe(0).tell(first, none));
  std::thread next([&] {
    Patience enough = pair.patient(Milliseconds(5000) * patience());
    (void)pair.pipe(0).tell(second, enough);
  });
  Patience enough = pair.patient(Milliseconds(5000) * patience());
  const auto heard = pair.pipe(1).hear(enough);
  CHECK((heard && *heard == first));
  const auto then = pair.pipe(1).hear(enough);
  CHECK((then && *then == second));
  next.join();
}
