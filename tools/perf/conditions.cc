// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <fstream>
#include <thread>

#include <fmt/format.h>

#include "src/base/config.h"
#include "src/base/process.h"
#include "src/base/version.h"
#include "tools/perf/perf.h"
#include "tools/perf/results.h"

namespace weft::perf {

namespace {

std::string processorName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown processor";
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
#if defined(__OPTIMIZE__)
constexpr bool kOptimized = true;
#else
constexpr bool kOptimized = false;
#endif

// Of each of weft's settings the variable that is set: its own, or NCCL's in its place.
std::vector<std::string> settingsHere() {
  std::vector<std::string> settings;
  for (const ConfigField& field : configFields()) {
    for (const char* name : {field.env, field.alias}) {
      const char* value = name != nullptr ? environmentValue(name) : nullptr;
      if (value == nullptr) continue;
      settings.push_back(fmt::format("{}={}", name, shownValue(field, value)));
      break;
    }
  }
  return settings;
}

}  // namespace

std::string buildText() {
  return fmt::format("{}, {}{}", __VERSION__, kOptimized ? "optimized" : "not optimized",
                     kSanitized ? ", sanitizer" : "");
}

MachineId machineId() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  MachineId id{};
  std::copy_n(boot.begin(), std::min(boot.size(), id.size() - 1), id.begin());
  return id;
}

Conditions readConditions(netdriver::Library& library, const netdriver::Properties& device) {
  Conditions c;
  c.plugin = library.path();
  c.table = fmt::format("{} (NCCL net v{})", library.net().name(), library.net().abi());
  c.device = device.name;
  c.speedMbps = device.speedMbps;
  c.settings = settingsHere();
  c.date = momentOf(std::time(nullptr));
  c.host = hostName();
  c.processor = processorName();
  c.processors = static_cast<int>(std::thread::hardware_concurrency());
  c.build = fmt::format("{}, compiler {}", versionText(), buildText());
  if (kSanitized) c.warnings.emplace_back("built with a sanitizer: the numbers say nothing about speed");
  if (!kOptimized) c.warnings.emplace_back("built without optimization: the numbers say nothing about speed");
  return c;
}

}  // namespace weft::perf
