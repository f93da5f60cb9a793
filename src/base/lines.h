// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "src/base/device_order.h"

// A copy that a GPU may watch. NCCL's LL128 puts a flag into the last 8 bytes of each aligned line of 128
// bytes, and its kernels take the line for whole when they see the flag. memcpy may write the end of a range
// before its middle, so it must not be used there.
namespace weft {

inline constexpr size_t kLineOfFlag = 128;
inline constexpr size_t kFlagOfLine = sizeof(uint64_t);

inline void copyFlag(std::byte* to, const std::byte* from) {
  uint64_t flag;
  std::memcpy(&flag, from, kFlagOfLine);
  std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(to)).store(flag, std::memory_order_relaxed);
}

// Whole lines. Several of them share a barrier, where it takes time.
inline void copyWholeLines(std::byte* to, const std::byte* from, size_t bytes) {
  constexpr size_t kAtOnce = (kOrderIsFree ? 1 : 32) * kLineOfFlag;
  for (size_t done = 0; done < bytes;) {
    const size_t end = kOrderIsFree ? done + kLineOfFlag : std::min(done + kAtOnce, bytes);
    for (size_t at = done; at < end; at += kLineOfFlag)
      std::memcpy(to + at, from + at, kLineOfFlag - kFlagOfLine);
    beforeDeviceReads();
    for (; done < end; done += kLineOfFlag) {
      const size_t flag = done + kLineOfFlag - kFlagOfLine;
      copyFlag(to + flag, from + flag);
    }
  }
}

// Copies so that the last 8 bytes of each aligned 128-byte line are written after the rest of the line. The
// ranges do not overlap. Any thread.
inline void copyLines(std::byte* to, const std::byte* from, size_t bytes) {
  const size_t into = reinterpret_cast<uintptr_t>(to) % kLineOfFlag;
  if (into + bytes < kLineOfFlag) {  // the range holds the end of no line
    std::memcpy(to, from, bytes);
    return;
  }
  const size_t head = (kLineOfFlag - into) % kLineOfFlag;
  const size_t flag = head < kFlagOfLine ? 0 : kFlagOfLine;  // a part of a flag is none
  std::memcpy(to, from, head - flag);
  if (flag > 0) {
    beforeDeviceReads();
    copyFlag(to + head - flag, from + head - flag);
  }
  const size_t whole = (bytes - head) / kLineOfFlag * kLineOfFlag;
  copyWholeLines(to + head, from + head, whole);
  std::memcpy(to + head + whole, from + head + whole, bytes - head - whole);
}

}  // namespace weft
