// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cerrno>
#include <cstdlib>
#include <dlfcn.h>
#include <vector>

#include "tests/support/catch.h"
#include "tests/system/ofi/lanes.h"

// What is posted to EFA's direct fabric, which the library in front of the installed libfabric plays. Both
// ends are of one card.
using namespace weft;
using namespace weft::test;

namespace {

Config direct() {
  Config config;
  config.libfabric = WEFT_NEWER_LIBFABRIC;
  return config;
}

struct Lane {
  Lane() : a("efa-direct", 1 << 20, direct()), b("efa-direct", 1 << 20, direct()) {
    a.connectTo(b);
    b.connectTo(a);
    a.lane->peerConnected();
    b.lane->peerConnected();
    REQUIRE(pollUntil({&a, &b}, [&] {
      return a.count(CompletionKind::connected) == 1 && b.count(CompletionKind::connected) == 1;
    }));
  }
  OfiSide a, b;
};

// softefa has it; libfabric has loaded that for itself.
void fault(const char* assignments) {
  void* device = ::dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
  REQUIRE(device);
  const auto set = reinterpret_cast<int (*)(void*, const char*)>(::dlsym(device, "softefa_set_faults"));
  REQUIRE(set);
  REQUIRE(set(nullptr, assignments) == 0);
}

}  // namespace

TEST_CASE("of works that are posted together each is the card's own business") {
  Lane lane;
  std::vector<Work> works;
  for (uint32_t i = 0; i < 12; i++) works.push_back(lane.a.work(Opcode::writeNotify, 64 * i, 64, i));
  REQUIRE(lane.a.lane->post(works) == works.size());
  CHECK(pollUntil({&lane.a, &lane.b}, [&] {
    return lane.a.count(CompletionKind::sent) == 12 && lane.b.count(CompletionKind::notified) == 12;
  }));
}

// Registered with a card that is lost, it has none; libfabric would go on with a half-described work.
TEST_CASE("a work whose memory has no descriptor fails, and libfabric does not see it") {
  Lane lane;
  Work work = lane.a.work(Opcode::write, 0, 64, 5);
  work.memory = nullptr;
  REQUIRE(lane.a.post(work));
  REQUIRE(pollUntil({&lane.a, &lane.b}, [&] { return lane.a.count(CompletionKind::sent, false) == 1; }));
  const Completion* failed = lane.a.first(CompletionKind::sent);
  CHECK(failed->error == EINVAL);
  CHECK(failed->context == 5);
}

// Each packet of SRD has a path of its own, and the peer's queue pair is shared: it goes on.
TEST_CASE("a lane is fenced when packets of a work that failed cannot land any more") {
  Lane lane;
  lane.a.buffer[0] = 1;
  fault("late=100ms status=13@1");
  REQUIRE(lane.a.post(lane.a.work(Opcode::write, 0, 64, 7)));
  REQUIRE(pollUntil({&lane.a, &lane.b}, [&] { return lane.a.count(CompletionKind::sent, false) == 1; }));
  lane.a.lane->retire();
  REQUIRE(pollUntil({&lane.a, &lane.b}, [&] { return lane.a.count(CompletionKind::retired) == 1; }));
  CHECK(lane.b.buffer[0] == 1);  // it has landed: nothing is on its way any more
  fault("none");
}

// What the library in front has for tests.
template <class Function>
Function* ofFront(const char* name) {
  void* front = ::dlopen(WEFT_NEWER_LIBFABRIC, RTLD_NOW | RTLD_NOLOAD);
  REQUIRE(front);
  auto* const found = reinterpret_cast<Function*>(::dlsym(front, name));
  REQUIRE(found);
  return found;
}

bool usesReceives(const OfiSide& side) {
  return side.queue->depths().notifications == 16;  // as many as the library in front has
}

// A receive that is lost is lost for good; when all are, every peer waits.
TEST_CASE("receives that the card refuses, or ends with an error, are posted again") {
  ::setenv("NEWER_RECEIVES", "1", 1);
  {
    Lane lane;
    REQUIRE(usesReceives(lane.b));
    const auto posted = [] { return ofFront<size_t()>("newer_receives_posted")(); };
    const size_t all = posted();
    REQUIRE(all == 32);  // of both ends
    const auto notify = [&](size_t count) {
      for (size_t i = 0; i < count; i++) {
        const size_t before = lane.b.count(CompletionKind::notified);
        REQUIRE(lane.a.post(lane.a.work(Opcode::writeNotify, 0, 8, i)));
        REQUIRE(
            pollUntil({&lane.a, &lane.b}, [&] { return lane.b.count(CompletionKind::notified) > before; }));
      }
    };
    for (int i = 0; i < 20; i++) {
      ofFront<void(size_t)>("newer_refuse_receives")(1);
      notify(1);
      ofFront<void(size_t)>("newer_fail_receives")(1);
      notify(1);
    }
    CHECK(pollUntil({&lane.a, &lane.b}, [&] { return posted() == all; }));
    CHECK(ofFront<size_t()>("newer_not_ready")() == 0);
  }
  ::unsetenv("NEWER_RECEIVES");
}

// Offered receives, EFA gives up notifications that need none.
TEST_CASE("receives for notifications are offered only where there is no other way") {
  const OfiSide side("efa-direct", 4096, direct());
  CHECK_FALSE(usesReceives(side));
}
