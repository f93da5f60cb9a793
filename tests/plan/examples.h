// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>

#include "tools/plan/fit.h"

// The jobs and clusters that are installed as examples. One thread.
namespace weft::plan {

std::string exampleFile(const std::string& name);
Scenario example(const std::string& job, const std::string& cluster);

}  // namespace weft::plan
