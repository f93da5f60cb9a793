// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/crypto/hash.h"

#include <algorithm>
#include <sodium.h>

#include "src/base/crypto/library.h"

// HMAC and HKDF over libsodium's SHA-256.
namespace weft {

namespace {

// An HMAC over parts that follow one another.
class Hmac {
 public:
  explicit Hmac(std::span<const std::byte> key) {
    crypto_auth_hmacsha256_init(&state_, sodiumBytes(key.data()), key.size());
  }
  ~Hmac() { sodium_memzero(&state_, sizeof state_); }
  Hmac(const Hmac&) = delete;
  Hmac& operator=(const Hmac&) = delete;

  Hmac& add(std::span<const std::byte> part) {
    crypto_auth_hmacsha256_update(&state_, sodiumBytes(part.data()), part.size());
    return *this;
  }
  Key256 finish() {
    Key256 out{};
    crypto_auth_hmacsha256_final(&state_, sodiumBytes(out.data()));
    return out;
  }

 private:
  crypto_auth_hmacsha256_state state_;
};

}  // namespace

Key256 sha256(std::span<const std::byte> bytes) {
  Key256 out{};
  crypto_hash_sha256(sodiumBytes(out.data()), sodiumBytes(bytes.data()), bytes.size());
  return out;
}

Key256 hmacOf(std::span<const std::byte> key, std::span<const std::byte> said) {
  return Hmac(key).add(said).finish();
}

Tag128 shortHmacOf(std::span<const std::byte> key, std::span<const std::byte> said) {
  const Key256 whole = hmacOf(key, said);
  Tag128 tag{};
  std::copy_n(whole.begin(), tag.size(), tag.begin());
  return tag;
}

// RFC 5869: each block is the HMAC over the block before it, the purpose and a counter that begins at 1.
Bytes hkdf(std::span<const std::byte> salt, std::span<const std::byte> secret, std::string_view purpose,
           size_t bytes) {
  static constexpr Key256 kNoSalt{};
  Key256 extracted = hmacOf(salt.empty() ? std::span<const std::byte>(kNoSalt) : salt, secret);
  const auto info = std::as_bytes(std::span(purpose.data(), purpose.size()));
  Bytes out;
  Key256 block{};
  for (uint8_t counter = 1; out.size() < bytes; counter++) {
    const auto before = std::span<const std::byte>(block).first(counter == 1 ? 0 : block.size());
    const std::byte number{counter};
    block = Hmac(extracted).add(before).add(info).add(std::span(&number, 1)).finish();
    out.insert(out.end(), block.begin(), block.end());
  }
  out.resize(bytes);
  wipe(extracted);
  wipe(block);
  return out;
}

Key256 derivedKey(std::span<const std::byte> salt, std::span<const std::byte> secret,
                  std::string_view purpose) {
  Bytes bytes = hkdf(salt, secret, purpose, sizeof(Key256));
  Key256 key{};
  std::copy(bytes.begin(), bytes.end(), key.begin());
  wipe(bytes);
  return key;
}

bool equalKeys(const Key256& a, const Key256& b) {
  return sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

void wipe(std::span<std::byte> secret) {
  sodium_memzero(secret.data(), secret.size());
}

}  // namespace weft
