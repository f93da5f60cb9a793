// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <optional>
#include <string>

// The note that a process leaves in a folder while it works, HOST.PID.here. It tells a process that gave no
// answer from a process that was never there: `weft state` names the former by it. Plain values; any thread.
namespace weft {

// The name of the set of processes that see the same /proc: one boot of one kernel, and one namespace of
// process numbers. Empty where the kernel does not say.
std::string processWorld();

struct Presence {
  int64_t pid = 0;
  uint64_t started = 0;  // in clock ticks since the boot: the same pid with another start is another process
  std::string world;     // of processWorld()
  std::string place;     // "rank 3 on node7"

  static Presence ofThisProcess();
  static Presence ofProcess(int64_t pid);  // of this world, without a place; not started: there is none

  // The line that names the process on its host, without its place. Another text becomes a process of no
  // world, whose state is unknown.
  std::string key() const;
  static Presence ofKey(const std::string& key);

  std::string text() const;  // the content of the file
  static std::optional<Presence> parse(const std::string& text);
};

// The field of a process's description on control links that has its key(): so a peer on the same host can
// look at its state.
inline constexpr const char* kProcessField = "process";

// The end of the name of a presence note.
inline constexpr const char* kPresenceEnding = ".here";

enum class ProcessState { gone, runs, waitsInKernel, stopped, traced, unknown };

// The state of a process by /proc. `unknown`: it is not a process of this world.
ProcessState stateOf(const Presence& process);

}  // namespace weft
