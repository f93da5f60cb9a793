// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <span>

#include "providers/local/shared.h"
#include "src/base/bytes.h"
#include "weft/transport.h"

// The message between the ends of a lane, which travels on the control link: the place of an inbox. Pure
// values; any thread. The bytes come from outside and are checked here.
namespace weft::local {

constexpr uint32_t kMemoryMagic = 0x6d6c6c77;  // "wllm", begins a memory's description

Bytes encodeAddress(const Whereabouts& where);
Result<Whereabouts> decodeAddress(std::span<const std::byte> bytes);

}  // namespace weft::local
