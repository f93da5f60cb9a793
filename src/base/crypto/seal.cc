// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/crypto/seal.h"

#include <array>
#include <cstring>
#include <sodium.h>

#include "src/base/crypto/library.h"

// Messages sealed by libsodium.
namespace weft {

namespace {

using SodiumNonce = std::array<unsigned char, crypto_aead_chacha20poly1305_ietf_NPUBBYTES>;
static_assert(kSealBytes == crypto_aead_chacha20poly1305_ietf_ABYTES);

// Four zero bytes and the number of the message, as the Noise protocol says (revision 34, 12.3).
SodiumNonce nonceOf(uint64_t number) {
  SodiumNonce nonce{};
  std::memcpy(nonce.data() + nonce.size() - sizeof number, &number, sizeof number);
  return nonce;
}

}  // namespace

void Seal::close(std::span<const std::byte> beside, std::span<std::byte> message,
                 std::span<std::byte, kSealBytes> tag) {
  startSodium();
  const SodiumNonce nonce = nonceOf(next_++);
  unsigned char* text = sodiumText(message);
  (void)crypto_aead_chacha20poly1305_ietf_encrypt_detached(
      text, sodiumBytes(tag.data()), nullptr, text, message.size(), sodiumBytes(beside.data()), beside.size(),
      nullptr, nonce.data(), sodiumBytes(key_.data()));
}

bool Seal::open(std::span<const std::byte> beside, std::span<std::byte> message,
                std::span<const std::byte, kSealBytes> tag) {
  startSodium();
  const SodiumNonce nonce = nonceOf(next_);
  unsigned char* text = sodiumText(message);
  const int opened = crypto_aead_chacha20poly1305_ietf_decrypt_detached(
      text, nullptr, text, message.size(), sodiumBytes(tag.data()), sodiumBytes(beside.data()), beside.size(),
      nonce.data(), sodiumBytes(key_.data()));
  if (opened != 0) return false;
  next_++;
  return true;
}

}  // namespace weft
