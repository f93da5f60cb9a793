// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <span>

#include "src/base/bytes.h"
#include "src/base/siphash.h"

// How one end of a connection proves that it knows a secret without saying it: each end sends a nonce, 128
// fresh random bits, and a proof is the keyed hash over the other end's nonce and what is said with it. A
// proof overheard on one connection is worth nothing on another. It is no encryption. Values; any thread.
namespace weft {

using Nonce = std::array<std::byte, 16>;
Nonce freshNonce();

// The proof over all bytes that were written, in their order; both ends write the same.
Tag128 proofOf(const Key128& key, const ByteWriter& said);
inline bool isProofOf(const Key128& key, const ByteWriter& said, const Tag128& tag) {
  return equalSecret(proofOf(key, said), tag);
}

}  // namespace weft
