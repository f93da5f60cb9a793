// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/report/run.h"

#include <algorithm>
#include <filesystem>

#include "src/stats/profile.h"

namespace weft::report {

namespace {

namespace fs = std::filesystem;

// Of a file, or of any file in a folder.
bool hasEnding(const std::string& path, std::string_view ending) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return path.ends_with(ending);
  for (const fs::directory_entry& entry : fs::directory_iterator(path, ignored))
    if (entry.path().string().ends_with(ending)) return true;
  return false;
}

}  // namespace

const char* nameOf(Source source) {
  constexpr const char* kNames[] = {"profile", "trace", "counters"};
  return kNames[static_cast<size_t>(source)];
}

const char* nameOf(Kind kind) {
  constexpr const char* kNames[] = {"send", "receive", "flush", "offload"};
  static_assert(std::size(kNames) == kKinds);
  return kNames[static_cast<size_t>(kind)];
}

SizeSum& SizeSum::operator+=(const SizeSum& other) {
  messages += other.messages;
  bytes += other.bytes;
  timed += other.timed;
  seconds += other.seconds;
  return *this;
}

Latency& Latency::operator+=(const Latency& other) {
  for (const auto& [upTo, count] : other.counts_) counts_[upTo] += count;
  return *this;
}

uint64_t Latency::count() const {
  uint64_t all = 0;
  for (const auto& [upTo, count] : counts_) all += count;
  return all;
}

double Latency::quantile(double share) const {
  const auto all = static_cast<double>(count());
  uint64_t below = 0;
  for (const auto& [upTo, count] : counts_) {
    below += count;
    if (static_cast<double>(below) >= share * all) return static_cast<double>(upTo) / 1e9;
  }
  return 0;
}

SizeSum Flow::total() const {
  SizeSum sum;
  for (const SizeSum& size : sizes) sum += size;
  return sum;
}

std::string Flow::label() const {
  return operation.empty() ? nameOf(kind) : operation + " " + nameOf(kind);
}

double Run::seconds() const {
  double most = 0;
  for (const Process& process : processes) most = std::max(most, process.seconds);
  return most;
}

Result<Run> readRun(const std::string& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored))
    return Error(Code::invalidArgument, "reading a run", path + ": there is no such file or folder");
  if (hasEnding(path, stats::kProfileEnding)) return readProfileRun(path);
  if (hasEnding(path, ".trace")) return readTraceRun(path);
  if (hasEnding(path, stats::kFileEnding)) return readCountersRun(path);
  return Error(
      Code::invalidArgument, "reading a run",
      path +
          ": nothing there ends in .profile.json (written at the end of a process with WEFT_PROFILE), "
          "in .trace (recorded with WEFT_RECORD_DIR) or in .stats (counted with WEFT_STATE_DIR)");
}

}  // namespace weft::report
