// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "src/base/number.h"
#include "tools/doctor/checks.h"

// The limits of a process that are used up first: descriptors, locked memory, threads.
namespace weft::doctor {

namespace {

constexpr const char* kLimits = "limits";
constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

struct Limit {
  uint64_t soft = 0;
  uint64_t hard = 0;
};

std::optional<uint64_t> limitNumber(const std::string& word) {
  if (word == "unlimited") return kUnlimited;
  return parseNumber<uint64_t>(word);
}

// A row of /proc/self/limits: the name takes 26 columns, behind it stand soft limit, hard limit and unit.
std::optional<Limit> limitOf(const World& world, std::string_view name) {
  constexpr size_t kNameColumns = 26;
  for (const std::string& row : lines(world.text("/proc/self/limits").value_or(""))) {
    if (!row.starts_with(name) || row.size() < kNameColumns) continue;
    const std::vector<std::string> numbers = words(std::string_view(row).substr(kNameColumns));
    if (numbers.size() < 2) return std::nullopt;
    const auto soft = limitNumber(numbers[0]);
    const auto hard = limitNumber(numbers[1]);
    if (soft && hard) return Limit{*soft, *hard};
  }
  return std::nullopt;
}

std::string limitText(uint64_t value) {
  return value == kUnlimited ? "unlimited" : fmt::format("{}", value);
}

Finding couldNotRead(const char* what) {
  return {Severity::unknown, kLimits, what, "/proc/self/limits cannot be read here", {}};
}

}  // namespace

// A peer process takes a control link, up to eight streams over TCP and what NCCL's bootstrap has.
Findings openFiles(const World& world) {
  constexpr const char* kWhat = "open files";
  constexpr uint64_t kBase = 256, kEach = 10, kUsualRanks = 512;
  const auto limit = limitOf(world, "Max open files");
  if (!limit) return {couldNotRead(kWhat)};
  const auto ranks = ranksInAll(world);
  const uint64_t peers = ranks ? static_cast<uint64_t>(*ranks) : kUsualRanks;
  const uint64_t need = kBase + kEach * peers;
  const std::string seen =
      fmt::format("ulimit -n is {} (soft) of {} (hard); {} ranks take about {} in each process",
                  limitText(limit->soft), limitText(limit->hard), peers, need);
  if (limit->hard < need)
    return {{ranks ? Severity::error : Severity::warning, kLimits, kWhat, seen, byRoot(Cure::openFiles)}};
  if (limit->soft < need)
    return {{Severity::note, kLimits, kWhat,
             seen + "; weft raises the soft limit to the hard one when it is loaded",
             byHand("ulimit -n " + limitText(limit->hard) + " for what else the job runs")}};
  return {{Severity::fine, kLimits, kWhat, seen, {}}};
}

// A card's driver pins what is registered, and each page of it counts.
Findings lockedMemory(const World& world) {
  constexpr const char* kWhat = "locked memory";
  constexpr uint64_t kEnough = uint64_t{16} << 30;
  const auto limit = limitOf(world, "Max locked memory");
  if (!limit) return {couldNotRead(kWhat)};
  const bool cards = !world.names("/sys/class/infiniband").empty();
  const auto size = [](uint64_t bytes) { return bytes == kUnlimited ? "unlimited" : sizeText(bytes); };
  const std::string seen =
      fmt::format("ulimit -l is {} (soft) of {} (hard)", size(limit->soft), size(limit->hard));
  if (limit->soft >= kEnough) return {{Severity::fine, kLimits, kWhat, seen, {}}};
  if (!cards) return {{Severity::fine, kLimits, kWhat, seen + "; no RDMA card here needs more", {}}};
  const Mend mend = limit->hard >= kEnough ? byHand(
                                                 "ulimit -l unlimited before the job starts; Slurm: "
                                                 "PropagateResourceLimitsExcept=MEMLOCK")
                                           : byRoot(Cure::lockedMemory);
  return {{Severity::error, kLimits, kWhat,
           seen + "; memory that is registered with a card is locked memory, and registrations will fail",
           mend}};
}

// Root has no such limit, but its containers have one of their own.
Findings threads(const World& world) {
  constexpr const char* kWhat = "threads";
  constexpr uint64_t kFew = 1024;
  const auto limit = limitOf(world, "Max processes");
  if (!limit) return {couldNotRead(kWhat)};
  const std::string seen = fmt::format("ulimit -u is {}", limitText(limit->soft));
  if (limit->soft >= kFew) return {{Severity::fine, kLimits, kWhat, seen, {}}};
  return {{Severity::warning, kLimits, kWhat,
           seen + "; all threads of this user count, and a training process has some hundred",
           limit->hard >= kFew ? byHand("ulimit -u " + limitText(limit->hard)) : byRoot(Cure::threads)}};
}

}  // namespace weft::doctor
