// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <map>
#include <optional>
#include <string>

#include "tools/doctor/world.h"

// NCCL's settings as NCCL itself reads them. The environment counts first, then the file that NCCL_CONF_FILE
// names or, without that, the user's ~/.nccl.conf, then /etc/nccl.conf. Every check that asks for a setting
// of NCCL's asks here. Any thread.
namespace weft::doctor {

struct NcclSetting {
  std::string value;
  std::string from;  // the file; "the environment"
};

// All that any of the three sets.
std::map<std::string, NcclSetting> ncclEnvironment(const World& world);

// None: nothing sets it, or to an empty value.
std::optional<NcclSetting> ncclSetting(const World& world, const std::string& name);

// Its value alone; empty: unset.
std::string ncclValue(const World& world, const std::string& name);

}  // namespace weft::doctor
