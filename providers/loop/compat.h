// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <cstring>

// How bytes get from one Queue's memory to another's. Under ThreadSanitizer a write that lands at once is
// hidden from it, as a NIC's would be: readers that look at memory before they were notified (rings of lines
// with checksums) are right to do so. Any thread.
namespace weft::loop {

#if defined(__SANITIZE_THREAD__)
[[gnu::noinline]] __attribute__((no_sanitize("thread"))) inline void copyUnseen(std::byte* to,
                                                                                const std::byte* from,
                                                                                size_t n) {
  volatile std::byte* out = to;
  const volatile std::byte* in = from;
  for (size_t i = 0; i < n; i++) out[i] = in[i];
}
#else
inline void copyUnseen(std::byte* to, const std::byte* from, size_t n) {
  if (n > 0) std::memmove(to, from, n);
}
#endif

}  // namespace weft::loop
