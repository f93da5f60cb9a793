// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <chrono>
#include <future>
#include <memory>
#include <optional>

#include "tests/protocol/rails.h"

// A flush reads back over each rail by which data may have come, and ends: done, or with an error.
using namespace weft;
using namespace weft::core;
using namespace weft::test;
using fault::FaultKind;
using fault::FaultOp;

namespace {

constexpr size_t kBytes = 1000;

// Registered by way of the comm, which opens the lanes for flushing.
class Landing {
 public:
  explicit Landing(RecvCommImpl& comm) : comm_(comm) {
    MemoryDesc desc;
    desc.address = bytes_->data();
    desc.length = bytes_->size();
    auto handle = comm_.registerMemory(desc);
    REQUIRE(handle);
    handle_ = *handle;
  }
  ~Landing() { CHECK(comm_.deregisterMemory(handle_)); }
  std::byte* data() { return bytes_->data(); }
  std::shared_ptr<const std::vector<std::byte>> bytes() const { return bytes_; }
  MemoryHandle* handle() const { return handle_; }

 private:
  RecvCommImpl& comm_;
  std::shared_ptr<std::vector<std::byte>> bytes_ = std::make_shared<std::vector<std::byte>>(kBytes);
  MemoryHandle* handle_ = nullptr;
};

Request* flush(RecvCommImpl& comm, Landing& into) {
  const ReceiveSpec spec{into.data(), kBytes, 1, into.handle(), nullptr};
  const Posted posted = comm.iflush(std::span(&spec, 1));
  REQUIRE(posted.ok);
  REQUIRE(posted.request);
  return posted.request;
}

// While another thread is inside the engine. Null: the call waited for that one.
Request* flushFromOutside(RecvCommImpl& comm, Landing& into) {
  const ReceiveSpec spec{into.data(), kBytes, 1, into.handle(), nullptr};
  std::optional<EngineEntry> other(std::in_place, comm.engine(), EngineEntry::wait);
  auto call = std::async(std::launch::async, [&] { return comm.iflush(std::span(&spec, 1)); });
  const bool waited = call.wait_for(std::chrono::seconds(5)) != std::future_status::ready;
  other.reset();
  const Posted posted = call.get();
  REQUIRE(posted.ok);
  return waited ? nullptr : posted.request;
}

}  // namespace

TEST_CASE("a flush right after the first registration waits until its lanes are connected") {
  Rails rails(2, {.flush = true});
  Landing to(rails.recv());
  Request* flushing = flush(rails.recv(), to);
  CHECK_FALSE(rails.recv().testRequest(flushing, nullptr).done);
  CHECK(rails.finished(rails.recv(), flushing));
}

TEST_CASE("a flush that the fabric does not take at once goes out later") {
  Rails rails(2, {.flush = true});
  Landing to(rails.recv());
  rails.live(10);
  fault::FaultRule full;
  full.kind = FaultKind::refuse;
  full.op = FaultOp::read;
  full.times = 5;
  const auto refused = rails.addRule(1, full);
  CHECK(rails.finished(rails.recv(), flush(rails.recv(), to)));
  CHECK(refused->counts().hits > 0);
}

TEST_CASE("a flush of which nothing is heard ends its comm and names the card") {
  Rails rails(2, {.flush = true});
  Landing to(rails.recv());
  rails.live(10);
  rails.breakRail(1, FaultKind::killSilent, FaultOp::read, 1);
  Request* flushing = flush(rails.recv(), to);
  rails.live(1000);
  REQUIRE(rails.recv().failed());
  CHECK_FALSE(rails.recv().testRequest(flushing, nullptr).ok);  // though its lane was fenced meanwhile
  CHECK(rails.recv().error().detail().find("the loopback lane of loop1: nothing came back") !=
        std::string::npos);
}

TEST_CASE("a flush whose read fails ends its comm, and its lane is there again for the next flush") {
  Rails rails(2, {.flush = true});
  Landing to(rails.recv());
  Connection other = rails.world().connect(0);
  Landing there(*other.recv);
  rails.live(10);
  const auto broken = rails.breakRail(1, FaultKind::error, FaultOp::read, 1);
  Request* flushing = flush(rails.recv(), to);
  rails.live(10);
  REQUIRE(broken->counts().hits == 1);
  // Expect: never done, as what it was to make visible may not be.
  CHECK_FALSE(rails.recv().testRequest(flushing, nullptr).ok);
  CHECK(rails.recv().error().detail().find("the loopback lane of loop1") != std::string::npos);
  rails.heal();
  // Expect: the comm beside it goes on, and both rails are read, as data comes by both.
  fault::FaultRule read;
  read.kind = FaultKind::delay;
  read.op = FaultOp::read;
  read.count = 0;
  const auto seen = rails.addRule(1, read);
  CHECK(rails.finished(*other.recv, flush(*other.recv, there)));
  CHECK(seen->counts().hits == 2);
}

TEST_CASE("where a lane for flushing could not be opened the next flush that needs it opens it") {
  fault::FaultRule once;
  once.kind = FaultKind::openEndpoint;
  once.op = FaultOp::call;
  once.rail = 1;
  Rails rails(2, {.flush = true});
  const auto refused = rails.addRule(1, once);
  Landing to(rails.recv());
  CHECK(refused->counts().hits == 1);
  // Expect: the rail that was missing is flushed too, and comes back after it died.
  rails.live(10);
  fault::FaultRule read;
  read.kind = FaultKind::delay;
  read.op = FaultOp::read;
  read.rail = 1;
  const auto seen = rails.addRule(1, read);
  CHECK(rails.finished(rails.recv(), flush(rails.recv(), to)));
  CHECK(seen->counts().hits == 1);
}

TEST_CASE("memory cannot be registered where no lane for flushing can be opened") {
  Rails rails(2, {.flush = true});
  std::vector<std::shared_ptr<fault::RuleState>> refused;
  for (int rail = 0; rail < 2; rail++) {
    fault::FaultRule once;
    once.kind = FaultKind::openEndpoint;
    once.op = FaultOp::call;
    once.rail = rail;
    refused.push_back(rails.addRule(1, once));
  }
  std::vector<std::byte> memory(kBytes);
  MemoryDesc desc;
  desc.address = memory.data();
  desc.length = memory.size();
  CHECK_FALSE(rails.recv().registerMemory(desc));
  for (const auto& rule : refused) CHECK(rule->counts().hits == 1);
  Landing to(rails.recv());
  CHECK(rails.finished(rails.recv(), flush(rails.recv(), to)));
}

TEST_CASE("a flush waits for no thread that is inside the engine, and begins when it is tested") {
  Rails rails(2, {.flush = true});
  Landing to(rails.recv());
  rails.live(10);
  fault::FaultRule read;
  read.kind = FaultKind::delay;
  read.op = FaultOp::read;
  read.count = 0;
  const auto seen = rails.addRule(1, read);
  Request* first = flushFromOutside(rails.recv(), to);
  Request* second = flushFromOutside(rails.recv(), to);
  REQUIRE(first);
  REQUIRE(second);
  CHECK(isLive(first));
  rails.live(10);
  CHECK(seen->counts().hits == 0);
  CHECK(rails.finished(rails.recv(), second));
  CHECK(seen->counts().hits == 2);
  CHECK(rails.finished(rails.recv(), first));
  CHECK(seen->counts().hits == 4);
  CHECK_FALSE(isLive(first));
}

TEST_CASE("a flush that was put off ends with its comm") {
  Rails rails(2, {.flush = true});
  Connection other = rails.world().connect(0);
  Landing to(rails.recv());
  auto there = std::make_unique<Landing>(*other.recv);
  rails.live(10);
  Request* flushing = flushFromOutside(*other.recv, *there);
  REQUIRE(flushing);
  SECTION("which fails") {
    other.recv->fail("as I please");
    CHECK_FALSE(other.recv->testRequest(flushing, nullptr).ok);
  }
  SECTION("which is closed") {
    there.reset();
    other.recv->close();
    CHECK_FALSE(isLive(flushing));
    CHECK_FALSE(core::test(flushing, nullptr).ok);
  }
  SECTION("whose memory was deregistered") {
    const auto stillMapped = there->bytes();  // the flush reads it all the same
    there.reset();
    CHECK(rails.finished(*other.recv, flushing));
  }
  CHECK(rails.finished(rails.recv(), flush(rails.recv(), to)));
}
