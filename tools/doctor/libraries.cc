// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/doctor/checks.h"
#include "tools/doctor/nccl_conf.h"

// Libraries that NCCL's loader would find: which network plugin it takes, and others beside weft's.
namespace weft::doctor {

namespace {

constexpr const char* kLibraries = "libraries";
constexpr const char* kPluginSetting = "NCCL_NET_PLUGIN";
constexpr const char* kOurs = "libnccl-net-weft.so";

// Folders of LD_LIBRARY_PATH, in their order, then the loader's own.
std::vector<std::string> searchedFolders(const World& world) {
  std::vector<std::string> folders;
  const std::string* path = world.setting("LD_LIBRARY_PATH");
  std::string_view rest = path ? std::string_view(*path) : std::string_view();
  while (!rest.empty()) {
    const std::string_view one = rest.substr(0, rest.find(':'));
    if (!one.empty()) folders.emplace_back(one);
    rest.remove_prefix(std::min(one.size() + 1, rest.size()));
  }
  for (const char* folder : {"/usr/local/lib", "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu",
                             "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib",
                             "/opt/amazon/ofi-nccl/lib", "/opt/aws-ofi-nccl/lib"})
    folders.emplace_back(folder);
  return folders;
}

// Every file there whose name begins so, once, in the order in which the loader comes by.
std::vector<std::string> filesNamed(const World& world, std::string_view beginning) {
  std::vector<std::string> found;
  std::set<std::string> seen;
  for (const std::string& folder : searchedFolders(world))
    for (const std::string& name : world.names(folder))
      if (name.starts_with(beginning)) {
        const std::string real = world.resolved(folder + "/" + name);
        if (seen.insert(real.empty() ? folder + "/" + name : real).second)
          found.push_back(folder + "/" + name);
      }
  return found;
}

std::string fileOf(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

}  // namespace

Findings pluginIsSet(const World& world) {
  if (ncclSetting(world, kPluginSetting)) return {};  // ncclPlugin judges it
  const std::vector<std::string> defaults = filesNamed(world, "libnccl-net.so");
  return {{Severity::error, kLibraries, kPluginSetting,
           defaults.empty() ? "it is not set, so NCCL takes its own network"
                            : fmt::format("it is not set, so NCCL takes {}", defaults.front()),
           bySetting("NCCL_NET_PLUGIN=weft")}};
}

Findings ncclPlugin(const World& world) {
  constexpr const char* kWhat = kPluginSetting;
  const std::string setting = ncclValue(world, kPluginSetting);
  if (setting.empty()) return {};
  if (setting.find("weft") == std::string::npos)
    return {{setting.find("record") != std::string::npos ? Severity::note : Severity::error, kLibraries,
             kWhat,
             fmt::format("it is \"{}\" by {}, which is not weft", setting,
                         ncclSetting(world, kPluginSetting)->from),
             bySetting("NCCL_NET_PLUGIN=weft")}};
  if (setting.find('/') != std::string::npos) {
    if (world.text(setting)) return {{Severity::fine, kLibraries, kWhat, setting, {}}};
    return {{Severity::error, kLibraries, kWhat, fmt::format("{} cannot be read", setting),
             bySetting("NCCL_NET_PLUGIN=weft")}};
  }
  const std::vector<std::string> found = filesNamed(world, kOurs);
  if (found.empty())
    return {{Severity::warning, kLibraries, kWhat,
             fmt::format("it is \"{}\", and no {} lies in LD_LIBRARY_PATH or the loader's folders", setting,
                         kOurs),
             byHand("NCCL_NET_PLUGIN with the whole path of " + std::string(kOurs) +
                    "; weft info --image names it")}};
  return {{Severity::fine, kLibraries, kWhat, fmt::format("\"{}\" is {}", setting, found.front()), {}}};
}

Findings otherPlugins(const World& world) {
  Findings found;
  const std::vector<std::string> ours = filesNamed(world, kOurs);
  if (ours.size() > 1)
    found.push_back({Severity::warning, kLibraries, "weft",
                     fmt::format("it is there several times: {}; the first counts", fmt::join(ours, ", ")),
                     byHand("remove the others: all ranks need one version")});
  for (const std::string& path : filesNamed(world, "libnccl-net")) {
    const std::string name = fileOf(path);
    if (name.starts_with(kOurs) || name.starts_with("libnccl-net-record")) continue;
    found.push_back(
        {Severity::note, kLibraries, name,
         fmt::format("another network plugin: {}; a rank without NCCL_NET_PLUGIN may load it", path),
         bySetting("NCCL_NET_PLUGIN=weft")});
  }
  for (const char* kind : {"libnccl-tuner", "libnccl-profiler"})
    for (const std::string& path : filesNamed(world, kind))
      if (fileOf(path).find("weft") == std::string::npos)
        found.push_back({Severity::warning, kLibraries, fileOf(path),
                         fmt::format("{} is loaded before what weft has of the kind", path),
                         byHand(kind == std::string_view("libnccl-tuner")
                                    ? "NCCL_TUNER_PLUGIN=weft takes weft's own"
                                    : "NCCL_PROFILER_PLUGIN=weft takes weft's own")});
  if (found.empty())
    found.push_back({Severity::fine,
                     kLibraries,
                     "plugins",
                     "no other one in LD_LIBRARY_PATH or the loader's folders",
                     {}});
  return found;
}

}  // namespace weft::doctor
