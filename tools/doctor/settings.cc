// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "src/base/config.h"
#include "src/base/nearest.h"
#include "tools/doctor/checks.h"
#include "tools/doctor/nccl_conf.h"
#include "tools/doctor/nccl_names.h"

// Settings: of weft, by its own table; of NCCL, against the names it reads; and pairs of them that fight.
namespace weft::doctor {

namespace {

constexpr const char* kSettings = "settings";

std::string assignment(const std::string& name, const std::string& value) {
  return name + "=" + value;
}

// As the plugin reads them: NCCL has made its files' lines variables of the process before it loads one.
Lookup lookupIn(const World& world) {
  return [all = std::make_shared<const std::map<std::string, NcclSetting>>(ncclEnvironment(world))](
             const char* name) -> const char* {
    const auto found = all->find(name);
    return found == all->end() ? nullptr : found->second.value.c_str();
  };
}

// The file of weft's settings, at the world's root unless a variable names it.
Result<ConfigFile> weftFile(const World& world) {
  if (world.setting(kConfigFileVariable)) return loadConfigFile(lookupIn(world));
  const auto text = world.text(kConfigFileDefault);
  return text ? parseConfigFile(kConfigFileDefault, *text) : Result<ConfigFile>(ConfigFile{});
}

}  // namespace

Findings weftSettings(const World& world) {
  constexpr const char* kWhat = "weft's settings";
  const auto file = weftFile(world);
  if (!file)
    return {{Severity::error, kSettings, kWhat, file.error().message(),
             byHand("weft info --config --sample shows the form")}};
  Findings found;
  const Lookup lookup = lookupIn(world);
  if (const auto config = readConfig(lookup, *file); !config)
    found.push_back({Severity::error, kSettings, kWhat, config.error().message(),
                     byHand("weft info --config shows what is allowed")});
  std::vector<std::string> texts;
  for (const auto& [name, value] : world.environment) texts.push_back(assignment(name, value));
  std::vector<const char*> environment;
  for (const std::string& text : texts) environment.push_back(text.c_str());
  std::vector<std::string> warnings = unknownVariables(environment);
  for (const auto& more : {fileWarnings(*file), unusedAliases(lookup)})
    warnings.insert(warnings.end(), more.begin(), more.end());
  for (const std::string& warning : warnings)
    found.push_back({Severity::warning, kSettings, kWhat, warning,
                     byHand("correct or remove it: it counts for nothing")});
  if (found.empty())
    found.push_back({Severity::fine,
                     kSettings,
                     kWhat,
                     file->path.empty() ? "all are known" : "all are known; " + file->path + " is read",
                     {}});
  return found;
}

Findings ncclSettings(const World& world) {
  constexpr const char* kWhat = "NCCL's settings";
  const std::map<std::string, NcclSetting> all = ncclEnvironment(world);
  const std::vector<std::string> known = ncclNames();
  Findings found;
  for (const auto& [name, set] : all) {
    if (!name.starts_with("NCCL_") || std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string nearest = nearestWord(name, known);
    if (!nearest.empty() && editDistance(name, nearest) <= 2)
      found.push_back({Severity::warning, kSettings, name,
                       fmt::format("NCCL has no such setting; the nearest is {}", nearest),
                       bySetting(assignment(nearest, set.value))});
  }
  if (found.empty()) found.push_back({Severity::fine, kSettings, kWhat, "none looks misspelt", {}});
  return found;
}

namespace {

// A setting of NCCL that works against weft, where its value begins so. An empty value is any.
struct Fight {
  const char* name;
  const char* value;
  Severity severity;
  const char* why;
  const char* mend;  // NAME=VALUE, or a sentence
};
constexpr Fight kFights[] = {
    {"NCCL_NET", "Socket", Severity::error, "NCCL takes its own sockets and no plugin", "NCCL_NET=weft"},
    {"NCCL_NET", "IB", Severity::error, "NCCL takes its own InfiniBand and no plugin", "NCCL_NET=weft"},
    {"NCCL_NET_PLUGIN", "none", Severity::error, "NCCL loads no network plugin", "NCCL_NET_PLUGIN=weft"},
    {"NCCL_NET_GDR_LEVEL", "LOC", Severity::warning, "NCCL gives no plugin GPU memory, whatever weft finds",
     "unset NCCL_NET_GDR_LEVEL"},
    {"NCCL_NET_GDR_LEVEL", "0", Severity::warning, "NCCL gives no plugin GPU memory, whatever weft finds",
     "unset NCCL_NET_GDR_LEVEL"},
    {"NCCL_NET_SHARED_BUFFERS", "0", Severity::note,
     "each connection has buffers of its own, and registers them", "unset NCCL_NET_SHARED_BUFFERS"},
    {"NCCL_DMABUF_ENABLE", "0", Severity::note,
     "NCCL hands weft no dma-buf: GPUDirect is left to nvidia-peermem", "unset NCCL_DMABUF_ENABLE"},
    {"NCCL_IB_DISABLE", "1", Severity::note,
     "it is about NCCL's own InfiniBand; weft uses such cards nevertheless", "WEFT_PROVIDER=tcp"},
    {"NCCL_TUNER_PLUGIN", "", Severity::note, "another tuner than weft's decides; weft's hides behind it",
     "unset NCCL_TUNER_PLUGIN"},
    {"NCCL_PROFILER_PLUGIN", "", Severity::note, "another profiler hears what weft reports",
     "NCCL_PROFILER_PLUGIN=weft"},
    {"FI_PROVIDER", "", Severity::note, "libfabric shows weft that provider and no other",
     "unset FI_PROVIDER; weft has WEFT_PROVIDER=ofi:NAME"},
};

bool isAssignment(std::string_view text) {
  return text.find('=') != std::string_view::npos && text.find(' ') == std::string_view::npos;
}

bool isOwn(std::string_view name, std::string_view value) {
  const bool names = name.ends_with("_PLUGIN") && value.find("weft") != std::string_view::npos;
  return names || (name == "NCCL_TUNER_PLUGIN" && value == "none");
}

// Two ways of saying where the offload is; NCCL asks for it by one, weft offers it by the other.
void compareOffload(const World& world, Findings* found) {
  const bool asked = ncclValue(world, "NCCL_COLLNET_ENABLE") == "1";
  const std::string* offered = world.setting("WEFT_COLLNET");
  const bool on = offered && !offered->empty() && *offered != "off";
  if (asked && !on)
    found->push_back({Severity::note, kSettings, "NCCL_COLLNET_ENABLE",
                      "NCCL asks for collective offload, and weft's is off",
                      bySetting("WEFT_COLLNET=peers")});
  if (on && !asked)
    found->push_back({Severity::note, kSettings, "WEFT_COLLNET",
                      "weft offers collective offload, and NCCL does not ask for it",
                      bySetting("NCCL_COLLNET_ENABLE=1")});
  if (on && *offered == "tree" && !world.setting("WEFT_AGGD"))
    found->push_back({Severity::error, kSettings, "WEFT_COLLNET",
                      "tree needs daemons, and WEFT_AGGD names none", bySetting("WEFT_AGGD=HOST:29600")});
}

void compareNames(const World& world, const char* ours, const char* theirs, Findings* found) {
  const std::string* mine = world.setting(ours);
  const std::string other = ncclValue(world, theirs);
  if (mine && !other.empty() && *mine != other)
    found->push_back(
        {Severity::note, kSettings, ours,
         fmt::format("it is \"{}\" and {} is \"{}\": weft goes by its own, NCCL's bootstrap by the other",
                     *mine, theirs, other),
         bySetting(assignment(ours, other))});
}

}  // namespace

Findings settingsThatFight(const World& world) {
  Findings found;
  for (const Fight& fight : kFights) {
    const std::string value = ncclValue(world, fight.name);
    const bool hit = *fight.value == '\0' ? !value.empty() : value == fight.value;
    if (!hit || isOwn(fight.name, value)) continue;
    found.push_back({fight.severity, kSettings, fight.name,
                     fmt::format("{}: {}", assignment(fight.name, value), fight.why),
                     isAssignment(fight.mend) ? bySetting(fight.mend) : byHand(fight.mend)});
  }
  compareOffload(world, &found);
  compareNames(world, "WEFT_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", &found);
  compareNames(world, "WEFT_HCA", "NCCL_IB_HCA", &found);
  if (found.empty())
    found.push_back({Severity::fine, kSettings, "NCCL and weft", "no settings that fight", {}});
  return found;
}

}  // namespace weft::doctor
