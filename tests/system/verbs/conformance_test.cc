// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/verbs/transport.h"
#include "tests/support/catch.h"
#include "tests/support/patience.h"
#include "tests/support/seam_conformance.h"

// Every promise of the seam over a real kernel's RDMA device. Nothing is excused.
using namespace weft;
using namespace weft::test;

namespace {

SeamUnderTest seam() {
  SeamUnderTest seam;
  seam.label = "verbs";
  seam.make = [] {
    auto fromUser = readConfigFromEnvironment();
    REQUIRE(fromUser);
    Config config = fromUser.take();
    config.closeTimeout *= patience();
    auto transport = verbs::makeTransport(config);
    REQUIRE(transport);
    return transport.take();
  };
  return seam;
}

}  // namespace

TEST_CASE("verbs: devices") {
  checkDevices(seam());
}
TEST_CASE("verbs: connecting") {
  checkConnecting(seam());
}
TEST_CASE("verbs: writes") {
  checkWrites(seam());
}
TEST_CASE("verbs: notifications") {
  checkNotifications(seam());
}
TEST_CASE("verbs: reads") {
  checkReads(seam());
}
TEST_CASE("verbs: contexts") {
  checkContexts(seam());
}
TEST_CASE("verbs: unsignaled") {
  checkUnsignaled(seam());
}
TEST_CASE("verbs: delivered") {
  checkDelivered(seam());
}
TEST_CASE("verbs: depth") {
  checkDepth(seam());
}
TEST_CASE("verbs: loopback") {
  checkLoopback(seam());
}
TEST_CASE("verbs: many lanes") {
  checkManyLanes(seam());
}
TEST_CASE("verbs: retire") {
  checkRetire(seam());
}
TEST_CASE("verbs: closing") {
  checkClosing(seam());
}
TEST_CASE("verbs: bad access") {
  checkBadAccess(seam());
}
TEST_CASE("verbs: registration") {
  checkRegistration(seam());
}
