// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>

#include "tests/nccl/api.h"

namespace nccltest {

// How the ranks of a communicator learn its unique id: rank 0 makes one and writes it to `file`, the others
// wait for that file. Any thread; what goes wrong ends the program with a line.
UniqueId meet(bool first, const std::string& file);

}  // namespace nccltest
