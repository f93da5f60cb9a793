// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstdlib>

#include "tests/system/driver/flow.h"
#include "tests/system/driver/program.h"

// A device of several cards loses one in the middle of a transfer, by the command that --break names: traffic
// goes on over the others, and every byte is right.
namespace weft::system {
namespace {

// Traffic while the card goes; afterwards the same engines connect again.
void loseCard(Run& run, End& end) {
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

// A context has engines of its own, made when the card is gone already.
void connectAnew(Run& run, End& end) {
  Context context = run.need(Context::create(end.net(), 0x5158));
  const Comm comm = connectOneWay(run, end, context);
  for (uint64_t seed = 0; seed < 20; seed++) sendChecked(run, comm, end.receives(), 3'000'000, seed);
  end.sync();
  if (end.receives()) expectMessage(run, {"goes on with", "of its"});
  run.count("contexts made later");
}

void railDies(Run& run, End& end) {
  run.expectWarnings();
  run.require(end.properties().virtualMembers > 1, "the device has a single card");
  loseCard(run, end);
  connectAnew(run, end);
  // Nothing of the plugin is left open, and it opens its cards anew.
  end.closeContext();
  connectAnew(run, end);
}

constexpr Case kCases[] = {
    {.name = "rail-dies", .pair = &railDies, .processesOnly = true},
};

}  // namespace
}  // namespace weft::system

int main(int argc, char** argv) {
  return weft::system::runProgram(argc, argv, weft::system::kCases);
}
