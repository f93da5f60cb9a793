// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/system/driver/run.h"

// What this process holds while no connection is open: the same after an hour as after a minute. Any thread,
// while the others are quiet.
namespace weft::soak {

struct Footprint {
  size_t descriptors = 0;
  size_t threads = 0;
  uint64_t resident = 0;  // bytes
  uint64_t heap = 0;      // bytes in use, without what the allocator keeps
};

Footprint footprint();

// Waits a moment for what goes away a little later (closed sockets, joined threads), then compares with how
// it was. `connections` is what was made since: libfabric loses memory with each.
void checkFootprint(system::Run& run, const std::string& who, const Footprint& before, uint64_t connections);

}  // namespace weft::soak
