// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softgpu/running.h"

#include <condition_variable>
#include <mutex>

#include "tests/softgpu/driver/driver.h"
#include "tests/softgpu/ownership.h"
#include "tests/softgpu/settings.h"

namespace softgpu {

namespace {

struct Running {
  std::mutex lock;
  std::condition_variable changed;
  int kernels = 0;
  int waiting = 0;  // calls
};

Running& running() {
  static auto* const all = &immortal<Running>();
  return *all;
}

void add(int kernels) {
  const std::lock_guard guard(running().lock);
  running().kernels += kernels;
  running().changed.notify_all();
}

}  // namespace

RunningKernel::RunningKernel() {
  add(1);
}

RunningKernel::~RunningKernel() {
  add(-1);
}

void mayWaitForKernels() {
  if (!settings().waits) return;
  std::unique_lock guard(running().lock);
  running().waiting++;
  running().changed.wait(guard, [] { return running().kernels == 0; });
  running().waiting--;
}

}  // namespace softgpu

void softgpu_hold_kernel(int hold) {
  softgpu::add(hold != 0 ? 1 : -1);
}

int softgpu_calls_that_wait() {
  const std::lock_guard guard(softgpu::running().lock);
  return softgpu::running().waiting;
}
