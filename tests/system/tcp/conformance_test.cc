// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/tcp/transport.h"
#include "tests/support/catch.h"
#include "tests/support/patience.h"
#include "tests/support/seam_conformance.h"

// Every promise of the seam over plain sockets: the whole lane over one connection, and with others for large
// writes.
using namespace weft;
using namespace weft::test;

namespace {

SeamUnderTest seamWith(int streams) {
  SeamUnderTest seam;
  seam.label = "tcp, " + std::to_string(streams) + " connections";
  seam.make = [streams] {
    auto fromUser = readConfigFromEnvironment();
    REQUIRE(fromUser);
    Config config = fromUser.take();
    config.closeTimeout *= patience();
    config.tcpStreams = streams;
    return tcp::makeTransport(config);
  };
  seam.reportsBadAccess =
      false;  // a plain write is complete when it is in the socket; what fails later breaks the lane
  seam.retiresAlone = false;  // what is in a socket can only be fenced by a peer that reads it
  return seam;
}

void over(void (*check)(const SeamUnderTest&)) {
  const int streams = GENERATE(1, 2, 4);
  CAPTURE(streams);
  check(seamWith(streams));
}

}  // namespace

TEST_CASE("tcp: devices") {
  over(checkDevices);
}
TEST_CASE("tcp: connecting") {
  over(checkConnecting);
}
TEST_CASE("tcp: writes") {
  over(checkWrites);
}
TEST_CASE("tcp: notifications") {
  over(checkNotifications);
}
TEST_CASE("tcp: reads") {
  over(checkReads);
}
TEST_CASE("tcp: messages") {
  over(checkMessages);
}
TEST_CASE("tcp: contexts") {
  over(checkContexts);
}
TEST_CASE("tcp: unsignaled") {
  over(checkUnsignaled);
}
TEST_CASE("tcp: delivered") {
  over(checkDelivered);
}
TEST_CASE("tcp: depth") {
  over(checkDepth);
}
TEST_CASE("tcp: loopback") {
  over(checkLoopback);
}
TEST_CASE("tcp: many lanes") {
  over(checkManyLanes);
}
TEST_CASE("tcp: retire") {
  over(checkRetire);
}
TEST_CASE("tcp: closing") {
  over(checkClosing);
}
TEST_CASE("tcp: bad access") {
  over(checkBadAccess);
}
TEST_CASE("tcp: registration") {
  over(checkRegistration);
}
