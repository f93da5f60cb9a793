// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <cstdlib>

#include "tests/system/driver/flow.h"
#include "tests/system/driver/program.h"
#include "tools/netdriver/log_sink.h"

// A device of several cards loses one in the middle of a transfer, by the command that --break names: traffic
// goes on over the others, and every byte is right.
namespace weft::system {
namespace {

bool saidThatACardWasLeft() {
  const auto lines = netdriver::LogSink::instance().takeWarnings();
  return std::any_of(lines.begin(), lines.end(), [](const std::string& line) {
    return line.find("is left to the other rails") != std::string::npos;
  });
}

// Traffic while the card goes, until both sides have seen it: the command takes its time on a busy machine.
// Afterwards the same engines connect again.
void loseCard(Run& run, End& end) {
  const auto messages = static_cast<uint64_t>(run.scaled(120, 2000));
  netdriver::Ends ends = connectBothWays(run, end);
  Flow in(run, ends.recv, true);
  Flow out(run, ends.send, false);
  end.sync();
  bool broken = !end.receives();
  Deadline deadline(run, "every message, with a card lost on the way");
  uint64_t limit = 0;
  for (int here = 0, both = 0; both == 0; both = here * end.exchange(here)) {
    limit += messages;
    in.limit(limit);
    out.limit(limit);
    for (; in.done() < limit || out.done() < limit; deadline.check()) {
      run.success(in.step(), Call::test);
      run.success(out.step(), Call::test);
      if (broken || in.done() < messages / 4) continue;
      run.require(std::system(run.settings().breakCommand.c_str()) == 0, "the command of --break failed");
      run.count("messages when a card was to be lost", in.done() + out.done());
      broken = true;
    }
    if (saidThatACardWasLeft()) here = 1;
  }
  run.count("messages", in.done() + out.done());
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
