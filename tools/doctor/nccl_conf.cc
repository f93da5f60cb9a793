// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/doctor/nccl_conf.h"

#include <vector>

namespace weft::doctor {

namespace {

// In the order in which they count.
std::vector<std::string> filesOf(const World& world) {
  std::vector<std::string> files;
  const std::string* named = world.setting("NCCL_CONF_FILE");
  if (named && !named->empty())
    files.push_back(*named);
  else if (!world.home.empty())
    files.push_back(world.home + "/.nccl.conf");
  files.emplace_back("/etc/nccl.conf");
  return files;
}

}  // namespace

std::map<std::string, NcclSetting> ncclEnvironment(const World& world) {
  std::map<std::string, NcclSetting> found;
  for (const auto& [name, value] : world.environment)
    found.emplace(name, NcclSetting{value, "the environment"});
  for (const std::string& file : filesOf(world))
    for (const std::string& row : lines(world.text(file).value_or(""))) {
      const size_t equals = row.find('=');
      if (equals == std::string::npos || row.starts_with('#')) continue;
      found.emplace(row.substr(0, equals), NcclSetting{row.substr(equals + 1), file});
    }
  return found;
}

std::optional<NcclSetting> ncclSetting(const World& world, const std::string& name) {
  const auto all = ncclEnvironment(world);
  const auto found = all.find(name);
  if (found == all.end() || found->second.value.empty()) return std::nullopt;
  return found->second;
}

std::string ncclValue(const World& world, const std::string& name) {
  return ncclSetting(world, name).value_or(NcclSetting{}).value;
}

}  // namespace weft::doctor
