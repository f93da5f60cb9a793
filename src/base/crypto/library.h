// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>

// The start of libsodium, and its kind of bytes. Only units of this folder include it. Any thread.
namespace weft {

// Lets libsodium choose its code for this processor; the first call does it. Without it the results are the
// same and take longer.
void startSodium();

inline const unsigned char* sodiumBytes(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}
inline unsigned char* sodiumBytes(std::byte* bytes) {
  return reinterpret_cast<unsigned char*>(bytes);
}

}  // namespace weft
