// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <optional>
#include <string>

// A note that a process leaves in a folder while it works, HOST.PID.here, so that others can tell it from a
// process that was never there: `weft state` names with it the processes that gave no answer. Plain values;
// any thread.
namespace weft {

// The processes that see one /proc: those of one boot of one kernel and of one namespace of process numbers.
// Empty where the kernel does not say.
std::string processWorld();

struct Presence {
  int64_t pid = 0;
  uint64_t started = 0;  // in clock ticks after the boot: a number that is used again is another process
  std::string world;     // as processWorld() says it
  std::string place;     // "rank 3 on node7"

  static Presence ofThisProcess();

  std::string text() const;  // the content of the file
  static std::optional<Presence> parse(const std::string& text);
};

// The ending of such a file's name.
inline constexpr const char* kPresenceEnding = ".here";

enum class ProcessState { gone, runs, waitsInKernel, stopped, traced, unknown };

// The state of a process as /proc says it; unknown where it is not a process of this world.
ProcessState stateOf(const Presence& process);

}  // namespace weft
