// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/fault/transport.h"
#include "providers/loop/transport.h"
#include "tests/support/catch.h"
#include "tests/support/seam_conformance.h"

// The in-process fabric in each of its behaviours, bare and under a fault injector that does nothing, keeps
// what the seam promises.
using namespace weft;
using namespace weft::test;

namespace {

loop::LoopOptions behaviour(int index) {
  using enum loop::Landing;
  loop::LoopOptions options;
  options.seed = static_cast<uint64_t>(index) + 11;
  options.rails = 2;
  options.messages = true;
  if (index == 0) return options;
  options.landing = whenPolled;
  if (index == 2 || index == 5) options.delivery = Delivery::accepted;
  if (index == 3 || index == 6) options.delivery = Delivery::selectable;
  if (index >= 4) options.shuffle = true;
  if (index >= 5) options.pieceBytes = 4096;
  if (index == 6) options.bytesPerPoll = {100000, 1000};
  if (index >= 5) options.piecesPerPoll = 64;
  return options;
}

SeamUnderTest seamOf(int index, bool faulty) {
  SeamUnderTest seam;
  seam.label = "behaviour " + std::to_string(index) + (faulty ? " under fault" : "");
  seam.make = [=]() -> std::unique_ptr<Transport> {
    auto inner = loop::makeTransport(behaviour(index));
    if (!faulty) return inner;
    return fault::makeTransport(std::move(inner));
  };
  // Where writes complete before they land, a bad one can only be seen as a broken lane.
  seam.reportsBadAccess = index != 2 && index != 3 && index != 5 && index != 6;
  return seam;
}

}  // namespace

TEST_CASE("the in-process fabric keeps every promise of the seam") {
  checkSeam(seamOf(GENERATE(range(0, 7)), false));
}

TEST_CASE("the fault injector without rules keeps every promise of the seam") {
  checkSeam(seamOf(GENERATE(range(0, 7)), true));
}
