// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace weft::local {

// As memcpy, for a part of something large. The stores go past the caches (MOVNTDQ), so that no line is
// fetched only to be overwritten. The fence makes the copy visible to every processor before the caller's
// next store.
inline void copyPastCaches(std::byte* to, const std::byte* from, size_t bytes) {
#if defined(__SSE2__)
  constexpr size_t kCacheLine = 64;
  const size_t head =
      std::min(bytes, (kCacheLine - reinterpret_cast<uintptr_t>(to) % kCacheLine) % kCacheLine);
  std::memcpy(to, from, head);
  size_t done = head;
  for (; bytes - done >= kCacheLine; done += kCacheLine) {
    const auto* in = reinterpret_cast<const __m128i*>(from + done);
    auto* out = reinterpret_cast<__m128i*>(to + done);
    const __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1), c = _mm_loadu_si128(in + 2),
                  d = _mm_loadu_si128(in + 3);
    _mm_stream_si128(out, a);
    _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c);
    _mm_stream_si128(out + 3, d);
  }
  std::memcpy(to + done, from + done, bytes - done);
  _mm_sfence();
#else
  std::memcpy(to, from, bytes);
#endif
}

}  // namespace weft::local
