// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>

#include <fmt/format.h>

#include "src/base/number.h"
#include "tools/doctor/checks.h"

// The memory and the processors that are left to a rank: /dev/shm, control groups, processor sets.
namespace weft::doctor {

namespace {

constexpr const char* kMemory = "memory";
constexpr const char* kProcessors = "processors";

// "0-3,8" has five of them.
int64_t countOf(std::string_view list) {
  int64_t count = 0;
  while (!list.empty()) {
    const std::string_view part = list.substr(0, list.find(','));
    const size_t dash = part.find('-');
    const auto first = parseNumber<int64_t>(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parseNumber<int64_t>(part.substr(dash + 1));
    if (!first || !last) return 0;
    count += *last - *first + 1;
    list.remove_prefix(std::min(part.size() + 1, list.size()));
  }
  return count;
}

// The folders of this process's control group that have a controller, the innermost first. Version 2 has one
// tree for all controllers, version 1 one for each.
std::vector<std::string> groupFolders(const World& world, std::string_view controller) {
  std::vector<std::string> folders;
  for (const std::string& row : lines(world.text("/proc/self/cgroup").value_or(""))) {
    const size_t first = row.find(':');
    const size_t second = first == std::string::npos ? first : row.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string names = row.substr(first + 1, second - first - 1);
    const bool unified = names.empty();
    if (!unified && ("," + names + ",").find("," + std::string(controller) + ",") == std::string::npos)
      continue;
    const std::string top = unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/" + std::string(controller);
    for (std::string place = row.substr(second + 1);; place.resize(place.rfind('/'))) {
      if (place == "/") place.clear();
      folders.push_back(top + place);
      if (place.empty()) break;
    }
  }
  return folders;
}

struct GroupMemory {
  std::string file;
  uint64_t most = 0;
  uint64_t used = 0;
};

// The tightest limit above this process; a number near 2 to 63 is "none" in version 1.
std::optional<GroupMemory> tightest(const World& world) {
  constexpr int64_t kNone = int64_t{1} << 60;
  std::optional<GroupMemory> found;
  for (const std::string& folder : groupFolders(world, "memory")) {
    for (const auto& [limit, usage] : {std::pair("/memory.max", "/memory.current"),
                                       std::pair("/memory.limit_in_bytes", "/memory.usage_in_bytes")}) {
      const auto most = world.number(folder + limit);
      if (!most || *most >= kNone || (found && found->most <= static_cast<uint64_t>(*most))) continue;
      found = GroupMemory{folder + limit, static_cast<uint64_t>(*most),
                          static_cast<uint64_t>(world.number(folder + usage).value_or(0))};
    }
  }
  return found;
}

}  // namespace

// NCCL's own shared memory between ranks of a host lies there, and so does weft's.
Findings sharedMemory(const World& world) {
  constexpr const char* kWhat = "/dev/shm";
  constexpr uint64_t kSmall = uint64_t{1} << 30, kTight = uint64_t{256} << 20;
  const auto space = world.space(world.path("/dev/shm"));
  if (!space)
    return {
        {Severity::unknown, kMemory, kWhat, "/dev/shm cannot be asked for its size", byRoot(Cure::mountShm)}};
  const std::string seen =
      fmt::format("{}, of which {} is free", sizeText(space->bytes), sizeText(space->free));
  if (space->bytes >= kSmall && space->free >= kTight) return {{Severity::fine, kMemory, kWhat, seen, {}}};
  if (space->bytes >= kSmall)
    return {{Severity::warning, kMemory, kWhat, seen + "; what earlier jobs left there may be in the way",
             byHand("ls -l /dev/shm, and remove what belongs to no running process")}};
  return {{space->free < kTight / 4 ? Severity::error : Severity::warning, kMemory, kWhat,
           seen + "; NCCL takes some MiB of it for each pair of ranks, and data loaders take more",
           byRoot(Cure::enlargeShm)}};
}

Findings memoryGroup(const World& world) {
  constexpr const char* kWhat = "control group";
  constexpr uint64_t kLittle = uint64_t{4} << 30;
  if (!world.text("/proc/self/cgroup"))
    return {{Severity::unknown, kMemory, kWhat, "/proc/self/cgroup cannot be read here", {}}};
  const auto limit = tightest(world);
  if (!limit) return {{Severity::fine, kMemory, kWhat, "no limit on memory", {}}};
  const std::string seen =
      fmt::format("{} is {}, of which {} is used", limit->file, sizeText(limit->most), sizeText(limit->used));
  const bool full = limit->used > limit->most / 10 * 9;
  if (!full && limit->most >= kLittle) return {{Severity::fine, kMemory, kWhat, seen, {}}};
  return {
      {Severity::warning, kMemory, kWhat,
       seen + (full ? "; a rank above it is killed without a word" : "; each rank of a job takes some GiB"),
       byHand("a larger limit where the job is started: Slurm --mem, docker --memory, Kubernetes "
              "resources.limits.memory")}};
}

// A rank has its main thread, NCCL's proxy and weft's control thread at least.
Findings processors(const World& world) {
  constexpr const char* kWhat = "processors of this process";
  constexpr int64_t kEach = 3;
  std::string allowed;
  for (const std::string& row : lines(world.text("/proc/self/status").value_or("")))
    if (const auto parts = words(row); parts.size() == 2 && parts[0] == "Cpus_allowed_list:")
      allowed = parts[1];
  const int64_t mine = countOf(allowed);
  if (mine == 0)
    return {{Severity::unknown, kProcessors, kWhat, "/proc/self/status does not say which there are", {}}};
  const int64_t online = std::max(countOf(world.line("/sys/devices/system/cpu/online")), mine);
  const auto ranks = ranksHere(world);
  const std::string seen = fmt::format("{} of {} ({})", mine, online, allowed);
  // A launcher that binds gives each rank its own; else all ranks of the host share them.
  const bool bound = mine < online;
  const int64_t need = bound ? kEach : kEach * ranks.value_or(1);
  if (mine >= need) return {{Severity::fine, kProcessors, kWhat, seen, {}}};
  return {
      {mine == 1 ? Severity::error : Severity::warning, kProcessors, kWhat,
       fmt::format("{}; {} wants {} for its main thread, NCCL's proxy and weft's thread", seen,
                   bound || !ranks ? "a rank" : fmt::format("{} ranks", *ranks), need),
       bound ? byHand("bind wider: srun --cpus-per-task=8 or --cpu-bind=none, mpirun --bind-to none, docker "
                      "--cpuset-cpus")
             : byHand("fewer ranks on this host, or a host with more processors")}};
}

// A quota stops all threads of a rank together until its period is over: a pause of up to 100 ms.
Findings processorQuota(const World& world) {
  constexpr const char* kWhat = "processor quota";
  for (const std::string& folder : groupFolders(world, "cpu")) {
    const std::vector<std::string> parts = words(world.line(folder + "/cpu.max"));
    auto quota =
        parts.size() == 2 ? parseNumber<int64_t>(parts[0]) : world.number(folder + "/cpu.cfs_quota_us");
    auto period =
        parts.size() == 2 ? parseNumber<int64_t>(parts[1]) : world.number(folder + "/cpu.cfs_period_us");
    if (!quota || !period || *quota <= 0 || *period <= 0) continue;
    int64_t throttled = 0;
    for (const std::string& row : lines(world.text(folder + "/cpu.stat").value_or("")))
      if (const auto pair = words(row); pair.size() == 2 && pair[0] == "nr_throttled")
        throttled = parseNumber<int64_t>(pair[1]).value_or(0);
    return {
        {throttled > 0 ? Severity::warning : Severity::note, kProcessors, kWhat,
         fmt::format("{} gives {:.2g} processors by quota, and stood still {} times for it; a rank that is "
                     "stopped holds up all",
                     folder, static_cast<double>(*quota) / static_cast<double>(*period), throttled),
         byHand("whole processors in place of a quota: Kubernetes' static policy with equal requests and "
                "limits, "
                "docker --cpuset-cpus in place of --cpus")}};
  }
  return {{Severity::fine, kProcessors, kWhat, "none", {}}};
}

}  // namespace weft::doctor
