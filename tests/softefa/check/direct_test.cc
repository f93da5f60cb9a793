// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cerrno>
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
