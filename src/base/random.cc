// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/random.h"

#include <cerrno>
#include <sys/random.h>

// Random bytes by getrandom(2).
namespace weft {

void fillRandom(std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t n = getrandom(out.data(), out.size(), 0);
    if (n > 0) out = out.subspan(static_cast<size_t>(n));
    if (n < 0 && errno != EINTR) return;  // only ENOSYS is left, on kernels that run no NCCL
  }
}

uint64_t randomU64() {
  uint64_t value = 0;
  fillRandom(std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

}  // namespace weft
