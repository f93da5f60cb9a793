// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/tuner/model.h"

// The platforms with published or measured numbers; each number names its source. Other platforms have no
// entry, and NCCL's own estimates stay. Pure functions; any thread.
namespace weft::tuner {

// The entry for a machine (by its firmware's name: "p5.48xlarge") on a fabric (by WEFT_PROVIDER's name).
std::optional<Platform> findPlatform(const std::string& machine, const std::string& fabric);

// The machines that have an entry, for messages.
std::vector<std::string> knownMachines();

}  // namespace weft::tuner
