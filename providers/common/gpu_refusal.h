// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cerrno>

#include "weft/transport.h"

// The meaning of a kernel's or card's refusal of GPU memory with that errno. Empty: nothing in particular.
namespace weft {

constexpr int kKernelNotSupported = 524;  // the kernel's own code, which no libc has words for

inline const char* gpuRefusal(MemoryKind kind, int code) {
  if (kind == MemoryKind::cuda && code == EFAULT)
    return "; no kernel module here knows GPU addresses (nvidia_peermem)";
  if (kind != MemoryKind::dmabuf) return "";
  if (code == ENOMEM) return "; the GPU's BAR or the card's table is full";
  if (code == EOPNOTSUPP || code == ENOSYS) return "; its kernel driver registers no dma-buf";
  if (code == kKernelNotSupported)
    return "; the card does not take this mapping of the memory (error 524: PCIe or C2C, wrongly paired)";
  if (code == EINVAL || code == EBADF) return "; the descriptor is no dma-buf, or ends before the range";
  return "";
}

}  // namespace weft
