// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>
#include <vector>

// The variables that NCCL 2.13 to 2.30 reads, so that a name beside them is seen to be misspelt. Pure; any
// thread.
namespace weft::doctor {

std::vector<std::string> ncclNames();

}  // namespace weft::doctor
