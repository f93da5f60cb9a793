// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>

#include "src/base/bytes.h"
#include "src/base/crypto/hash.h"

// How an end of a connection proves that it knows a secret without telling it. Each end sends a nonce of 128
// fresh random bits. A proof is HMAC-SHA-256 over the other end's nonce and the text that goes with it, so a
// proof from one connection is worth nothing on another. The connection is not encrypted. Values; any
// thread.
namespace weft {

using Nonce = std::array<std::byte, 16>;
Nonce freshNonce();

// The proof over all bytes that were written, in their order. Both ends write the same.
Tag128 proofOf(const Key256& key, const ByteWriter& said);

}  // namespace weft
