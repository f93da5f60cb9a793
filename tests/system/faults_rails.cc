// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstdlib>

#include "tests/system/driver/flow.h"
#include "tests/system/driver/program.h"

// A device of several cards loses one in the middle of a transfer, by the command that --break names: traffic
// goes on over the others, and every byte is right.
namespace weft::system {
namespace {

void railDies(Run& run, End& end) {
  run.expectWarnings();
  run.require(end.properties().virtualMembers > 1, "the device has a single card");
  const auto messages = static_cast<uint64_t>(run.scaled(120, 2000));
  netdriver::Ends ends = connectBothWays(run, end);
  Flow in(run, ends.recv, true);
  Flow out(run, ends.send, false);
  in.limit(messages);
  out.limit(messages);
  end.sync();
  bool broken = !end.receives();
  Deadline deadline(run, "every message, with a card lost on the way");
  for (; in.done() < messages || out.done() < messages; deadline.check()) {
    run.success(in.step(), Call::test);
    run.success(out.step(), Call::test);
    if (broken || in.done() < messages / 4) continue;
    run.require(std::system(run.settings().breakCommand.c_str()) == 0, "the command of --break failed");
    run.count("messages before a card was lost", in.done() + out.done());
    broken = true;
  }
  run.count("messages", in.done() + out.done());
  expectMessage(run, {"is left to the other rails"});
  end.sync();
  // A new connection finds the card dead.
  const Comm another = connectOneWay(run, end);
  sendChecked(run, another, end.receives(), 3'000'000, 1);
  end.sync();
}

constexpr Case kCases[] = {
    {.name = "rail-dies", .pair = &railDies, .processesOnly = true},
};

}  // namespace
}  // namespace weft::system

int main(int argc, char** argv) {
  return weft::system::runProgram(argc, argv, weft::system::kCases);
}
