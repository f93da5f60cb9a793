// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "weft/transport.h"

// Every promise of include/weft/transport.h as a check that runs over any provider: two ends of one process,
// each with a Transport of its own. Nothing here relies on order, or on a bare write landing before its
// target polls. Each function is meant to be called from a TEST_CASE of its own; failures are Catch2's.
namespace weft::test {

struct SeamUnderTest {
  std::string label;
  std::function<std::unique_ptr<Transport>()> make;  // called for each end

  // The promises that a fabric may be excused from; say why where one is cleared.
  bool reportsBadAccess = true;  // a bad key or a range outside fails visibly (false: it may say nothing)
  bool keepsBounds = true;       // registrations end at the byte, not at the page
  bool checksKeys = true;        // a wrong key reaches no memory
  bool retiresAlone = true;      // nothing lands after `retired` though the peer did not poll meanwhile
  bool closesInFlight = true;    // an end may vanish with works in flight, and the other one still polls
};

void checkDevices(const SeamUnderTest& seam);     // discover and open
void checkConnecting(const SeamUnderTest& seam);  // both ways; bad addresses and blobs
void checkWrites(const SeamUnderTest& seam);      // plain: data at odd sizes and offsets, nothing around it
void checkNotifications(const SeamUnderTest& seam);  // imm and length intact, data there when notified
void checkReads(const SeamUnderTest& seam);
void checkMessages(const SeamUnderTest& seam);  // where the device has them: placed, dropped, refused
void checkContexts(const SeamUnderTest& seam);  // each completion exactly once
void checkUnsignaled(const SeamUnderTest& seam);
void checkDelivered(const SeamUnderTest& seam);  // landed when completed, where the device says so
void checkDepth(const SeamUnderTest& seam);      // post takes fewer, never more than granted
void checkLoopback(const SeamUnderTest& seam);
void checkManyLanes(const SeamUnderTest& seam);     // several on one Queue, told apart
void checkRetire(const SeamUnderTest& seam);        // all complete, `retired` last, nothing lands afterwards
void checkClosing(const SeamUnderTest& seam);       // destroying in any allowed order, works in flight
void checkBadAccess(const SeamUnderTest& seam);     // bad key, out of range: memory untouched
void checkRegistration(const SeamUnderTest& seam);  // nonsense is refused

// All of the above, each in a SECTION.
void checkSeam(const SeamUnderTest& seam);

}  // namespace weft::test
