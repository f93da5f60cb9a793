// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

namespace weft::test {

// A sanitizer keeps freed memory for a while and makes everything slow: what is measured from outside
// (resident memory, elapsed times) says nothing about weft then.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace weft::test
