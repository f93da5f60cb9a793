// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "src/base/bytes.h"
#include "src/base/siphash.h"

// Keyed hashes and keys that are derived from others. All of it is computed by libsodium, which is linked
// statically. Pure functions; any thread.
namespace weft {

using Key256 = std::array<std::byte, 32>;

Key256 sha256(std::span<const std::byte> bytes);

// HMAC-SHA-256 (RFC 2104), whole and cut to its first 16 bytes.
Key256 hmacOf(std::span<const std::byte> key, std::span<const std::byte> said);
Tag128 shortHmacOf(std::span<const std::byte> key, std::span<const std::byte> said);

// HKDF-SHA-256 (RFC 5869). An empty salt is that of the RFC. `purpose` keeps keys apart that come from one
// secret.
Bytes hkdf(std::span<const std::byte> salt, std::span<const std::byte> secret, std::string_view purpose,
           size_t bytes);
Key256 derivedKey(std::span<const std::byte> salt, std::span<const std::byte> secret,
                  std::string_view purpose);

// A comparison whose time does not tell how many bytes are equal.
bool equalKeys(const Key256& a, const Key256& b);

// Overwrites memory in a way that the compiler does not leave out.
void wipe(std::span<std::byte> secret);

}  // namespace weft
