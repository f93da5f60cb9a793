// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/presence.h"

#include <algorithm>
#include <array>
#include <fcntl.h>
#include <unistd.h>
#include <vector>

#include "src/base/fd.h"
#include "src/base/number.h"
#include "src/base/process.h"

// Presence notes, and the state of processes from /proc.
namespace weft {

namespace {

constexpr size_t kStateField = 2;  // of /proc/PID/stat, counted from 0
constexpr size_t kStartedField = 21;

// The content of a file of /proc, whose size is not known before. Empty where it cannot be read.
std::string readSmall(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 4096> buffer{};
  if (!file) return {};
  const ssize_t bytes = ::read(file.get(), buffer.data(), buffer.size());
  return bytes > 0 ? std::string(buffer.data(), static_cast<size_t>(bytes)) : std::string();
}

std::string linkOf(const char* path) {
  std::array<char, 256> buffer{};
  const ssize_t bytes = ::readlink(path, buffer.data(), buffer.size());
  return bytes > 0 ? std::string(buffer.data(), static_cast<size_t>(bytes)) : std::string();
}

// The second field is the program's name in brackets, which may hold blanks and brackets of its own
// (proc(5)).
std::vector<std::string> statFields(int64_t pid) {
  const std::string text = readSmall("/proc/" + std::to_string(pid) + "/stat");
  const size_t named = text.rfind(')');
  if (named == std::string::npos) return {};
  std::vector<std::string> fields{"", ""};
  for (size_t at = named + 2; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    fields.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return fields;
}

uint64_t startedAt(const std::vector<std::string>& fields) {
  if (fields.size() <= kStartedField) return 0;
  return parseNumber<uint64_t>(fields[kStartedField]).value_or(0);
}

}  // namespace

// The boot's random number, and the inode of the namespace of process numbers.
std::string processWorld() {
  std::string boot = readSmall("/proc/sys/kernel/random/boot_id");
  while (!boot.empty() && boot.back() == '\n') boot.pop_back();
  const std::string space = linkOf("/proc/self/ns/pid");
  return boot.empty() || space.empty() ? std::string() : boot + " " + space;
}

Presence Presence::ofThisProcess() {
  const int64_t pid = ::getpid();
  return {pid, startedAt(statFields(pid)), processWorld(), placeName()};
}

Presence Presence::ofProcess(int64_t pid) {
  return {pid, startedAt(statFields(pid)), processWorld(), ""};
}

std::string Presence::key() const {
  return std::to_string(pid) + " " + std::to_string(started) + " " + world;
}

Presence Presence::ofKey(const std::string& key) {
  const size_t first = key.find(' ');
  const size_t second = first == std::string::npos ? first : key.find(' ', first + 1);
  if (second == std::string::npos) return {};
  return {parseNumber<int64_t>(key.substr(0, first)).value_or(0),
          parseNumber<uint64_t>(key.substr(first + 1, second - first - 1)).value_or(0),
          key.substr(second + 1), ""};
}

std::string Presence::text() const {
  return "pid " + std::to_string(pid) + "\nstarted " + std::to_string(started) + "\nworld " + world +
         "\nplace " + place + "\n";
}

std::optional<Presence> Presence::parse(const std::string& text) {
  Presence found;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    const size_t blank = std::min(line.find(' '), line.size());
    const std::string name = line.substr(0, blank);
    const std::string value = line.substr(std::min(blank + 1, line.size()));
    if (name == "pid") found.pid = parseNumber<int64_t>(value).value_or(0);
    if (name == "started") found.started = parseNumber<uint64_t>(value).value_or(0);
    if (name == "world") found.world = value;
    if (name == "place") found.place = value;
  }
  if (found.pid <= 0) return std::nullopt;
  return found;
}

// The letters of /proc/PID/stat (proc(5)): T stopped by a signal, t by a debugger, Z and X gone, D in the
// kernel.
ProcessState stateOf(const Presence& process) {
  if (process.world.empty() || process.world != processWorld()) return ProcessState::unknown;
  const std::vector<std::string> fields = statFields(process.pid);
  if (fields.size() <= kStateField || startedAt(fields) != process.started) return ProcessState::gone;
  switch (fields[kStateField].empty() ? '?' : fields[kStateField].front()) {
    case 'T':
      return ProcessState::stopped;
    case 't':
      return ProcessState::traced;
    case 'Z':
    case 'X':
      return ProcessState::gone;
    case 'D':
      return ProcessState::waitsInKernel;
    default:
      return ProcessState::runs;
  }
}

}  // namespace weft
