// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "src/base/presence.h"

// The writer of a file of counters. A user who may write to the folder can name any process and any host in
// a file of his, so these count as far as the kernel does not say otherwise: the owner of the file, and
// /proc.
namespace weft::counted {

// Why a file that says it is of `claimed` is not believed, given its owner. Empty: nothing speaks against it.
std::string whyNotBelieved(const Presence& claimed, uint32_t owner);

// The process of that number here, where `claimed` is of a world that this host does not see, as a container
// has one; nothing where there is none, or where the claim is of this world and stands.
std::optional<Presence> knownAs(const Presence& claimed, int64_t pid);

}  // namespace weft::counted
