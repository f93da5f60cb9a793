// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/stats/writer.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <vector>

// By the line "Uid:" of /proc/PID/status: the owner of the folder there is root for processes that dump no
// core.
namespace weft::counted {

namespace {

// The users of a process: real, effective, saved, and of its files. Empty: there is none.
std::vector<uint32_t> usersOf(int64_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("Uid:")) continue;
    std::istringstream numbers(line.substr(4));
    std::vector<uint32_t> users;
    for (uint32_t user = 0; numbers >> user;) users.push_back(user);
    return users;
  }
  return {};
}

}  // namespace

std::string whyNotBelieved(const Presence& claimed, uint32_t owner) {
  const ProcessState state = stateOf(claimed);
  if (state == ProcessState::gone || state == ProcessState::unknown) return {};
  const std::vector<uint32_t> users = usersOf(claimed.pid);
  if (users.empty() || std::find(users.begin(), users.end(), owner) != users.end()) return {};
  return "user " + std::to_string(owner) + " wrote it and names process " + std::to_string(claimed.pid) +
         ", which is another user's; its counters are not believed";
}

std::optional<Presence> knownAs(const Presence& claimed, int64_t pid) {
  if (pid <= 0 || claimed.world == processWorld()) return std::nullopt;
  Presence known = Presence::ofProcess(pid);
  if (known.started == 0) return std::nullopt;
  known.place = claimed.place;
  return known;
}

}  // namespace weft::counted
