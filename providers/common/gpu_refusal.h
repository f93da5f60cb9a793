// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cerrno>

#include "weft/transport.h"

// The likely meaning of an errno with which a kernel or a card refuses GPU memory. Empty: nothing in
// particular. Sources: ibv_reg_mr(3) and the kernel's drivers/infiniband/core/umem_dmabuf.c. Pure; any
// thread.
namespace weft {

constexpr int kKernelNotSupported = 524;  // ENOTSUPP of the kernel, for which no libc has words

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
