// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

// A copy that a GPU may watch. NCCL's LL128 puts a flag into the last 8 bytes of each aligned line of 128
// bytes, and its kernels take the line for whole when they see the flag. memcpy may write the end of a range
// before its middle, so it must not be used there.
namespace weft {

// Copies so that the last 8 bytes of each aligned 128-byte line are written after the rest of the line. The
// ranges do not overlap. Any thread.
inline void copyLines(std::byte* to, const std::byte* from, size_t bytes) {
  constexpr size_t kLine = 128;
  constexpr size_t kFlag = sizeof(uint64_t);
  if (reinterpret_cast<uintptr_t>(to) % kLine + bytes < kLine) {  // the range holds the end of no line
    std::memcpy(to, from, bytes);
    return;
  }
  const size_t head = std::min(bytes, (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine);
  std::memcpy(to, from, head);
  size_t done = head;
  for (; bytes - done >= kLine; done += kLine) {
    std::memcpy(to + done, from + done, kLine - kFlag);
    uint64_t flag;
    std::memcpy(&flag, from + done + kLine - kFlag, kFlag);
    // Release: neither compiler nor processor moves the bytes before the flag behind it.
    std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(to + done + kLine - kFlag))
        .store(flag, std::memory_order_release);
  }
  std::memcpy(to + done, from + done, bytes - done);
}

}  // namespace weft
