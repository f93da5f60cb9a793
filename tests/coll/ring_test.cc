// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/ring.h"

#include <new>
#include <vector>

#include "tests/support/catch.h"

// The ring by itself, over a backend that does as the test says.
using namespace weft;
using namespace weft::coll;

namespace {

class FakeMemory final : public GroupMemory {};

class FakeBackend final : public Backend {
 public:
  Result<std::unique_ptr<GroupMemory>> registerMemory(const MemoryDesc&) override {
    return std::unique_ptr<GroupMemory>(std::make_unique<FakeMemory>());
  }
  Begun begin(uint64_t turn, const Operation&) override {
    if (gone) return Begun::failed;
    if (busy) return Begun::notNow;
    turns.push_back(turn);
    return Begun::begun;
  }
  Step advance(uint64_t turn) override {
    if (gone) return Step::failed;
    if (throws) throw std::bad_alloc();
    return turn < finished ? Step::done : Step::going;
  }
  std::string failure() override { return "the daemon is gone"; }
  Heard hear() override { return heard; }
  core::Posted flush(const void*, size_t, GroupMemory&) override {
    if (gone) return {false, nullptr};
    return {true, nullptr};
  }
  std::string flushFailure() override { return failure(); }
  void fail(const std::string& why) override { told.push_back(why); }
  void stop() override { steps += "stop "; }
  void deregisterMemory(GroupMemory&) override { steps += "deregister "; }
  void disconnect() override { steps += "disconnect"; }
  uint64_t bytesSent() const override { return 0; }

  bool gone = false;
  bool busy = false;
  uint64_t finished = 0;  // turns before this one are done
  std::vector<uint64_t> turns;
  bool throws = false;
  Heard heard;
  std::vector<std::string> told;  // to the other members
  std::string steps;              // of the end
};

struct Ring {
  Ring() {
    auto fake = std::make_unique<FakeBackend>();
    backend = fake.get();
    ring = std::make_unique<OperationRing>(OperationRing::Place{0, 2, &clock}, std::move(fake));
    MemoryDesc desc;
    desc.address = bytes;
    desc.length = sizeof bytes;
    auto registered = ring->registerMemory(desc);
    REQUIRE(registered);
    host = *registered;
    desc.kind = MemoryKind::cuda;
    auto other = ring->registerMemory(desc);
    REQUIRE(other);
    gpu = *other;
  }
  Started start() {
    Operation operation;
    operation.send = operation.receive = bytes;
    operation.sendMemory = operation.receiveMemory = host;
    operation.bytes = sizeof bytes;
    return ring->start(operation);
  }

  FakeClock clock;
  FakeBackend* backend = nullptr;
  std::unique_ptr<OperationRing> ring;
  std::byte bytes[64]{};
  GroupMemory* host = nullptr;
  GroupMemory* gpu = nullptr;
};

}  // namespace

TEST_CASE("ring: 64 operations are under way, and their turns are in order") {
  Ring ring;
  std::vector<GroupRequest*> requests;
  for (int i = 0; i < 64; i++) requests.push_back(ring.start().request);
  for (GroupRequest* request : requests) REQUIRE(request);
  const Started more = ring.start();
  CHECK(more.ok);
  CHECK_FALSE(more.request);
  ring.backend->finished = 1;
  CHECK(ring.ring->test(requests[0]).done);
  CHECK_FALSE(ring.ring->test(requests[1]).done);
  CHECK(ring.start().request);
  for (uint64_t turn = 0; turn < 65; turn++) CHECK(ring.backend->turns[turn] == turn);
}

TEST_CASE("ring: an operation that the backend does not take now takes no turn") {
  Ring ring;
  ring.backend->busy = true;
  for (int tries = 0; tries < 3; tries++) {
    const Started started = ring.start();
    CHECK(started.ok);
    CHECK_FALSE(started.request);
  }
  ring.backend->busy = false;
  CHECK(ring.start().request);
  CHECK(ring.backend->turns == std::vector<uint64_t>{0});
}

TEST_CASE("ring: a result is told once, also after the group broke") {
  Ring ring;
  GroupRequest* first = ring.start().request;
  GroupRequest* second = ring.start().request;
  REQUIRE((first && second));
  Operation impossible;
  impossible.bytes = 3;
  impossible.type = ElementType::f32;
  CHECK_FALSE(ring.ring->start(impossible).ok);
  CHECK(ring.backend->told.size() == 1);
  ring.backend->finished = 1;
  CHECK(ring.ring->test(first).done);
  CHECK_FALSE(ring.ring->test(second).ok);
  CHECK(ring.ring->error().message().find("not a number of whole elements") != std::string::npos);
}

TEST_CASE("ring: 64 flushes have places beside 64 operations, and one more is an error") {
  Ring ring;
  for (int i = 0; i < 64; i++) REQUIRE(ring.start().request);
  for (int i = 0; i < 64; i++) REQUIRE(ring.ring->flush(ring.bytes, 8, ring.gpu).request);
  const Started more = ring.ring->flush(ring.bytes, 8, ring.gpu);
  CHECK_FALSE(more.ok);
  CHECK_FALSE(more.request);
  CHECK(ring.ring->error().message().find("64 flushes are under way") != std::string::npos);
}

TEST_CASE("ring: a flush is never ok without a request, and never done when the backend is lost") {
  Ring ring;
  const Started before = ring.ring->flush(ring.bytes, 8, ring.gpu);
  REQUIRE(before.request);
  CHECK(ring.ring->test(before.request).done);
  ring.backend->gone = true;
  const Started after = ring.ring->flush(ring.bytes, 8, ring.gpu);
  CHECK_FALSE(after.ok);
  CHECK_FALSE(after.request);
  CHECK_FALSE(ring.start().ok);
  CHECK(ring.ring->error().message().find("the daemon is gone") != std::string::npos);
}

TEST_CASE("ring: closing ends the operations, then gives back the memory, then the connections") {
  {
    Ring ring;
    ring.ring.reset();
  }
  Ring ring;
  ring.ring->close();
  CHECK(ring.backend->steps == "stop deregister deregister disconnect");
}

TEST_CASE("ring: a rank that runs out of memory tells the others, whose operations would wait for ever") {
  Ring ring;
  GroupRequest* request = ring.start().request;
  REQUIRE(request);
  ring.backend->throws = true;
  CHECK_THROWS_AS(ring.ring->test(request), std::bad_alloc);
  REQUIRE(ring.backend->told.size() == 1);
  CHECK(ring.backend->told[0] == "rank 0 has no memory left");
  ring.backend->throws = false;
  CHECK_FALSE(ring.ring->test(request).ok);
}

TEST_CASE("ring: the words of another rank are better than what was seen here") {
  Ring ring;
  GroupRequest* request = ring.start().request;
  REQUIRE(request);
  ring.backend->heard = {Pipe::State::alarmed, "rank 1 burns"};
  ring.backend->gone = true;
  CHECK_FALSE(ring.ring->test(request).ok);
  CHECK(ring.ring->error().message().find("rank 1 burns") != std::string::npos);
}
