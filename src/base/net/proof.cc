// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/net/proof.h"

#include "src/base/random.h"

// Nonces, and proofs over the bytes that were written.
namespace weft {

// The kernel's random bytes: a nonce that is used twice would let an old proof pass.
Nonce freshNonce() {
  Nonce nonce;
  fillRandom(nonce);
  return nonce;
}

Tag128 proofOf(const Key256& key, const ByteWriter& said) {
  return shortHmacOf(key, said.bytes());
}

}  // namespace weft
