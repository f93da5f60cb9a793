// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <span>

#include "tests/support/sanitizer.h"
#include "tests/system/driver/end.h"
#include "tests/system/driver/run.h"

// The main of a system test program: runs its cases for every table version asked for, as two threads and as
// two processes (by starting itself again), prints a line a case with what it counted, and exits with 0 or 1;
// with 77 where each case was skipped, which it says with the reason.
// Arguments:
//   --plugin PATH     the plugin (default: weft's own)
//   --abi LIST        versions such as 12,8 (default: 12 to 8)
//   --few-abi LIST    the same, for the first tier only
//   --mode LIST       threads,processes (default: both)
//   --case LIST       only these cases
//   --full            the counts of the second tier for the first version, and all versions; WEFT_TEST_FULL=1
//                     does the same
//   --timeout SECONDS for every single wait
//   --merge           each side merges all its devices into one
//   --break COMMAND   what a case runs on side 0 to break something in the middle
//   --other NAME=VALUE in the environment of the process that is the other side; may be given several times
//   --third NAME=VALUE in that of a third process, where a case has one, instead of --other
//   --verbose         show what the plugin logs
namespace weft::system {

struct Case {
  const char* name = "";
  // One of the two. Both sides run `pair`; `alone` has no peer and opens the plugin itself if it wants to.
  void (*pair)(Run&, End&) = nullptr;
  void (*alone)(Run&, int abi) = nullptr;
  bool processesOnly = false;
  bool threadsOnly = false;
  bool peerMayDie = false;  // the other process does not have to end well
  bool breaks = false;      // runs --break, and only where that is given
  int minAbi = 0;
  // "NAME=VALUE", set before the plugin is loaded.
  const char* environment = nullptr;
};

int runProgram(int argc, char** argv, std::span<const Case> cases);

// Opens the plugin of the settings and measures every call of it from the start.
std::unique_ptr<netdriver::Library> openPlugin(Run& run, int abi);

// No call that NCCL's proxy threads make takes longer than this for each card of the device, in CPU time
// but for fresh pages: the rare ones open cards. A sanitizer makes those many times slower.
constexpr Milliseconds kCallLimit{test::kSanitized ? 1000 : 100};
// Fails the run for every call that took longer.
void checkCallTimes(Run& run, Net& net);

}  // namespace weft::system
