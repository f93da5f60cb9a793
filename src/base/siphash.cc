// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/siphash.h"

#include <bit>
#include <cstring>

// SipHash-2-4 as its authors define it (siphash.h).
namespace weft {

// The names are those of the paper.
namespace {

struct State {
  uint64_t v0, v1, v2, v3;

  void round() {
    v0 += v1, v1 = std::rotl(v1, 13) ^ v0, v0 = std::rotl(v0, 32);
    v2 += v3, v3 = std::rotl(v3, 16) ^ v2;
    v0 += v3, v3 = std::rotl(v3, 21) ^ v0;
    v2 += v1, v1 = std::rotl(v1, 17) ^ v2, v2 = std::rotl(v2, 32);
  }
  void absorb(uint64_t word) {
    v3 ^= word;
    round(), round();
    v0 ^= word;
  }
  uint64_t squeeze() {
    round(), round(), round(), round();
    return v0 ^ v1 ^ v2 ^ v3;
  }
};

// The last word of a message may have fewer than 8 bytes; the rest is zero.
uint64_t loadWord(const std::byte* from, size_t n) {
  uint64_t word = 0;
  // x86 and arm64 are little-endian, as the definition needs. memcpy must not get the null of an empty span.
  if (n > 0) std::memcpy(&word, from, n);
  return word;
}

}  // namespace

Tag128 sipHash128(const Key128& key, std::span<const std::byte> message) {
  const uint64_t k0 = loadWord(key.data(), 8), k1 = loadWord(key.data() + 8, 8);
  State s{k0 ^ 0x736f6d6570736575u, k1 ^ 0x646f72616e646f6du ^ 0xee, k0 ^ 0x6c7967656e657261u,
          k1 ^ 0x7465646279746573u};
  const size_t whole = message.size() / 8 * 8;
  for (size_t i = 0; i < whole; i += 8) s.absorb(loadWord(message.data() + i, 8));
  s.absorb(loadWord(message.data() + whole, message.size() - whole) | uint64_t{message.size()} << 56);
  s.v2 ^= 0xee;
  const uint64_t low = s.squeeze();
  s.v1 ^= 0xdd;
  const uint64_t high = s.squeeze();
  Tag128 tag;
  std::memcpy(tag.data(), &low, 8);
  std::memcpy(tag.data() + 8, &high, 8);
  return tag;
}

bool equalSecret(const Tag128& a, const Tag128& b) {
  std::byte difference{0};
  for (size_t i = 0; i < a.size(); i++) difference |= a[i] ^ b[i];
  return difference == std::byte{0};
}

}  // namespace weft
