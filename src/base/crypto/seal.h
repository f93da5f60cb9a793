// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <span>

#include "src/base/crypto/hash.h"

// The sealing of messages that follow one another in one direction: ChaCha20-Poly1305 (RFC 8439) with a
// counter for a nonce, as the Noise protocol uses it. A message that was changed, left out, repeated or
// moved does not open. A seal has a single owner.
namespace weft {

constexpr size_t kSealBytes = 16;  // what a seal adds to a message

class Seal {
 public:
  explicit Seal(const Key256& key) : key_(key) {}
  ~Seal() { wipe(key_); }
  Seal(const Seal&) = default;
  Seal& operator=(const Seal&) = default;

  // Encrypts in place and writes the tag. `beside` is covered by the tag and goes in clear.
  void close(std::span<const std::byte> beside, std::span<std::byte> message,
             std::span<std::byte, kSealBytes> tag);
  // Decrypts in place. False: this is not the next message of the other end, and nothing was changed.
  bool open(std::span<const std::byte> beside, std::span<std::byte> message,
            std::span<const std::byte, kSealBytes> tag);

 private:
  Key256 key_;
  uint64_t next_ = 0;  // the number of the next message
};

}  // namespace weft
