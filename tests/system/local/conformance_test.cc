// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/local/transport.h"
#include "tests/support/catch.h"
#include "tests/support/patience.h"
#include "tests/support/seam_conformance.h"

// Every promise of the seam through shared memory.
using namespace weft;
using namespace weft::test;

namespace {

void over(void (*check)(const SeamUnderTest&)) {
  SeamUnderTest seam;
  seam.label = "local";
  seam.make = [] {
    auto fromUser = readConfigFromEnvironment();
    REQUIRE(fromUser);
    Config config = fromUser.take();
    config.closeTimeout *= patience();
    return local::makeTransport(config);
  };
  check(seam);
}

}  // namespace

TEST_CASE("local: devices") {
  over(checkDevices);
}
TEST_CASE("local: connecting") {
  over(checkConnecting);
}
TEST_CASE("local: writes") {
  over(checkWrites);
}
TEST_CASE("local: notifications") {
  over(checkNotifications);
}
TEST_CASE("local: reads") {
  over(checkReads);
}
TEST_CASE("local: contexts") {
  over(checkContexts);
}
TEST_CASE("local: unsignaled") {
  over(checkUnsignaled);
}
TEST_CASE("local: delivered") {
  over(checkDelivered);
}
TEST_CASE("local: depth") {
  over(checkDepth);
}
TEST_CASE("local: loopback") {
  over(checkLoopback);
}
TEST_CASE("local: many lanes") {
  over(checkManyLanes);
}
TEST_CASE("local: retire") {
  over(checkRetire);
}
TEST_CASE("local: closing") {
  over(checkClosing);
}
TEST_CASE("local: bad access") {
  over(checkBadAccess);
}
TEST_CASE("local: registration") {
  over(checkRegistration);
}
