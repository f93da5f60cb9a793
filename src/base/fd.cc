// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/fd.h"

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <mutex>
#include <pthread.h>
#include <unistd.h>

// Descriptors that a forked child closes at once.
namespace weft {

namespace {

// A bit for each descriptor. Plain atomics, because a forked child may only do what a signal handler may
// (fork(2)). A descriptor beyond the table is inherited.
constexpr int kTracked = 1 << 16;
std::array<std::atomic<uint64_t>, kTracked / 64> tracked;

uint64_t bitOf(int fd) {
  return uint64_t{1} << (fd % 64);
}
std::atomic<uint64_t>& wordOf(int fd) {
  return tracked[static_cast<size_t>(fd) / 64];
}

// Runs in the child, right after fork(). Only async-signal-safe calls are allowed here.
void closeTrackedInChild() {
  for (size_t word = 0; word < tracked.size(); word++) {
    for (uint64_t bits = tracked[word].exchange(0, std::memory_order_relaxed); bits != 0; bits &= bits - 1) {
      ::close(static_cast<int>(word * 64) + std::countr_zero(bits));
    }
  }
}

// glibc drops the handler when the library that registered it is unloaded.
void installOnce() {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, closeTrackedInChild); });
}

}  // namespace

// The bit goes before the descriptor, so that a number that is opened again is not closed in a child.
void Fd::reset(int fd) {
  if (fd_ >= 0 && fd_ < kTracked) wordOf(fd_).fetch_and(~bitOf(fd_), std::memory_order_relaxed);
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

void Fd::closeInForkedChildren() const {
  if (fd_ < 0 || fd_ >= kTracked) return;
  installOnce();
  wordOf(fd_).fetch_or(bitOf(fd_), std::memory_order_relaxed);
}

}  // namespace weft
