// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/tuner/model.h"

// The platforms whose numbers somebody has published or measured; each number says where it is from. A
// platform that is not here has no entry, and NCCL's own estimates stay. Pure functions; any thread.
namespace weft::tuner {

// The entry for a machine (as its firmware calls it: "p5.48xlarge") on a fabric (as WEFT_PROVIDER names it).
std::optional<Platform> findPlatform(const std::string& machine, const std::string& fabric);

// Machines that have one, for messages.
std::vector<std::string> knownMachines();

}  // namespace weft::tuner
