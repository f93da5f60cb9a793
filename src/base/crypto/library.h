// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <span>

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

// libsodium takes no null pointer, not even for no bytes: then this is a place that nothing is written to.
inline unsigned char* sodiumText(std::span<std::byte> bytes) {
  static std::byte nothing{};
  return sodiumBytes(bytes.empty() ? &nothing : bytes.data());
}

}  // namespace weft
