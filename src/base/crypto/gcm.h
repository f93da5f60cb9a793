// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <span>

#include "src/base/crypto/hash.h"
#include "src/base/crypto/seal.h"
#include "weft/result.h"

// The sealing of a stream's records with AES-256-GCM, for bytes by the gigabyte: by OpenSSL's libcrypto.so.3
// where this host has it, else by libsodium where the processor has instructions for AES. Both give the same
// bytes. A record has the number of those before it for a nonce. Each object has a single owner.
namespace weft {

class GcmSeal {
 public:
  virtual ~GcmSeal() = default;
  // The next record: `to` has as many bytes as `from`, and may be the same. False: the library failed.
  virtual bool close(std::span<const std::byte> from, std::byte* to,
                     std::span<std::byte, kSealBytes> tag) = 0;
  // False: this is not the next record; what is in `to` must not be used.
  virtual bool open(std::span<const std::byte> from, std::byte* to,
                    std::span<const std::byte, kSealBytes> tag) = 0;
};

// An error: this host has neither, in words for the user.
Result<std::unique_ptr<GcmSeal>> makeGcmSeal(const Key256& key);
// For tests: by libsodium alone, or null.
std::unique_ptr<GcmSeal> makeSodiumGcmSeal(const Key256& key);

}  // namespace weft
