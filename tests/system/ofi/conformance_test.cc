// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/support/catch.h"
#include "tests/support/seam_conformance.h"
#include "tests/system/ofi/lanes.h"

// Every promise of the seam over every software provider of this machine, and over udp;ofi_rxd, which takes
// the way that hardware takes: one domain a Device, one endpoint a Queue, shared by its lanes.
using namespace weft;
using namespace weft::test;

namespace {

SeamUnderTest seamOver(const std::string& provider) {
  SeamUnderTest seam;
  seam.label = "ofi:" + provider;
  seam.make = [provider] {
    auto transport = ofi::makeTransport(provider, ofiConfig());
    REQUIRE(transport);
    return transport.take();
  };
  seam.reportsBadAccess = false;  // a plain write with a bad key "succeeds" when it is in the socket
  seam.retiresAlone = false;      // what is in a socket can only be fenced by a peer that reads it
  return seam;
}

void over(void (*check)(const SeamUnderTest&), const char* except = "") {
  static const std::vector<std::string> found = [] {
    auto all = oneProcessProviders();
    all.emplace_back("udp;ofi_rxd");
    return all;
  }();
  const std::string provider = pick(found);
  if (provider.empty() || provider == except) return;
  CAPTURE(provider);
  check(seamOver(provider));
}

}  // namespace

TEST_CASE("ofi: devices") {
  over(checkDevices);
}
TEST_CASE("ofi: connecting") {
  over(checkConnecting);
}
TEST_CASE("ofi: writes") {
  over(checkWrites);
}
TEST_CASE("ofi: notifications") {
  over(checkNotifications);
}
TEST_CASE("ofi: reads") {
  over(checkReads);
}
TEST_CASE("ofi: contexts") {
  over(checkContexts);
}
TEST_CASE("ofi: unsignaled") {
  over(checkUnsignaled);
}
TEST_CASE("ofi: delivered") {
  over(checkDelivered);
}
TEST_CASE("ofi: depth") {
  over(checkDepth);
}
TEST_CASE("ofi: loopback") {
  over(checkLoopback);
}
TEST_CASE("ofi: many lanes") {
  over(checkManyLanes);
}
// udp;ofi_rxd has no connection to cut: a datagram in the peer's socket lands after all. weft never takes it
// by itself.
TEST_CASE("ofi: retire") {
  over(checkRetire, "udp;ofi_rxd");
}
// Two ends of one process share their regions by pointer in shm 1.17, and one must not close before the
// other.
TEST_CASE("ofi: closing") {
  over(checkClosing, "shm");
}
// shm writes without notification straight into the peer's address space; neither key nor range is looked at.
TEST_CASE("ofi: bad access") {
  over(checkBadAccess, "shm");
}
TEST_CASE("ofi: registration") {
  over(checkRegistration);
}
