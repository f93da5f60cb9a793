// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>

// The order of memory between a processor and a card or a GPU that reads and writes the same memory. C++
// orders what threads see of each other, and on arm64 its fences stop at the processors (the inner shareable
// domain); a device is outside of them. x86 keeps loads in order, and stores in order, for everyone: there
// only the compiler must be held. Calls of libibverbs, libfabric and the CUDA driver order what they do
// themselves. Any thread.
namespace weft {

// True: the barriers below are no instruction.
#if defined(__x86_64__)
inline constexpr bool kOrderIsFree = true;
#else
inline constexpr bool kOrderIsFree = false;
#endif

// Between a load of what a device writes last, and the loads of what it wrote before.
inline void afterDeviceWrote() {
#if defined(__aarch64__)
  asm volatile("dmb oshld" ::: "memory");
#else
  std::atomic_thread_fence(std::memory_order_acquire);
#endif
}

// Between all that was done so far, and a store that tells a device of it. A card's writes that were seen
// here count as done.
inline void beforeDeviceReads() {
#if defined(__aarch64__)
  asm volatile("dmb osh" ::: "memory");
#else
  std::atomic_thread_fence(std::memory_order_release);
#endif
}

}  // namespace weft
