// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softgpu/kernels/fault.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/softgpu/settings.h"

namespace softgpu {

namespace {

std::atomic<unsigned> launches{0};

}  // namespace

void beSlow(Block&) {
  if (settings().faults.slow > 0)
    std::this_thread::sleep_for(std::chrono::microseconds(settings().faults.slow));
}

bool nextLaunchHangs() {
  const unsigned number = ++launches;
  return settings().faults.hang == number;
}

bool beLateOrHang(Block& block, bool hangs) {
  if (settings().faults.late > 0)
    std::this_thread::sleep_for(std::chrono::microseconds(settings().faults.late));
  if (!hangs) return false;
  waitUntil(block, [] { return false; });
  return true;
}

}  // namespace softgpu
