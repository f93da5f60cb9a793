// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "src/base/config.h"
#include "src/base/crypto/hash.h"

// The settings WEFT_SECRET and WEFT_ENCRYPT, as control links and lanes use them. Values; any thread.
namespace weft {

struct Protection {
  enum class Encrypt : uint8_t { off, control, all };
  Encrypt encrypt = Encrypt::control;
  std::optional<Key256> jobSecret;

  // The key of proofs by `secret`, with the job's secret mixed in where there is one. `purpose` names what is
  // proven.
  Key256 keyFor(std::span<const std::byte> secret, std::string_view purpose) const;
};

// Reads the file that WEFT_SECRET names. Errors name the setting and the file.
Result<Protection> readProtection(const Config& config);

}  // namespace weft
