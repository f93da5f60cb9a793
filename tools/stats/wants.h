// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/stats/reader.h"

// The messages that each process wants of another one and has not got, by what it left: the edges along which
// a verdict follows a halt to the rank that stood still first. Plain values that point into the processes
// read.
namespace weft::counted {

inline constexpr uint64_t kSecond = 1'000'000'000;
inline constexpr uint64_t kStill = 2 * kSecond;  // without any progress, while something is wanted: it stands

// A message that a process wants of a peer and has not got, or not got rid of.
struct Want {
  const Comm* comm = nullptr;
  uint64_t since = 0;
  uint32_t tag = 0, k = 0, bytes = 0;
  bool begun = false;  // a receive: a part of it is here
};

std::vector<Want> wantsOf(const Process& process);  // the oldest of each comm
uint64_t movedLast(const Process& process);         // when a request of it was posted or finished last
bool standsStill(const Process& process);  // it wants something, and nothing of it has moved for long

std::string nameOf(const Process& process);
std::string timeText(uint64_t time);
std::string textOf(const Process& process, const Want& want);
double secondsOf(uint64_t span);

// "rank 3 on node7 pid 4711 (192.0.2.7)" names a process as it names itself.
bool names(const std::string& peer, const Process& process);
const Process* find(const std::vector<Process>& processes, const std::string& peer);  // null: it left nothing

// Where the waits that begin at a process lead to. A receive that was posted ahead is no wait while the
// process owes the peer a message that comes first.
struct WaitEnd {
  const Process* process = nullptr;  // it waits for nobody, or is in the circle; null: `peer` left nothing
  std::string peer;
  bool circle = false;
  std::vector<std::string> way;  // each wait on the way there
};
WaitEnd follow(const std::vector<Process>& processes, const Process& from);

// Two ends of a connection that want messages of different tags: their ranks are in different collectives.
struct Mismatch {
  const Process* sender = nullptr;
  const Process* receiver = nullptr;
  std::string text;
};
std::vector<Mismatch> mismatchesOf(const std::vector<Process>& processes);

}  // namespace weft::counted
