// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tests/softgpu/capture.h"
#include "tests/softgpu/device.h"
#include "tests/softgpu/driver/driver.h"
#include "tests/softgpu/memory.h"
#include "tests/softgpu/ownership.h"
#include "tests/softgpu/stream.h"

using namespace softgpu;

namespace {

void* pointer(DevicePointer address) {
  return reinterpret_cast<void*>(static_cast<uintptr_t>(address));
}

bool pageable(DevicePointer address) {
  return !findMapping(static_cast<uintptr_t>(address));
}

void move(DevicePointer to, DevicePointer from, size_t size) {
  std::memmove(view(pointer(to)), view(pointer(from)), size);
}

// Copies stand still while a test holds them. Never destroyed: streams outlive the program's end.
struct Held {
  std::mutex lock;
  std::condition_variable changed;
  bool hold = false;
  int underWay = 0;
};

std::atomic<bool> refusing{false};

Held& held() {
  static auto* const kHeld = &immortal<Held>();
  return *kHeld;
}

void submitCopy(Stream& stream, std::function<void()> work) {
  {
    const std::lock_guard guard(held().lock);
    ++held().underWay;
  }
  stream.submit([work = std::move(work)] {
    std::unique_lock guard(held().lock);
    held().changed.wait(guard, [] { return !held().hold; });
    guard.unlock();
    work();
    guard.lock();
    --held().underWay;
  });
}

// As CUDA does it: memory that the driver does not know may be gone or changed when the call has returned, so
// it is read before, and written before.
Result copy(DevicePointer to, DevicePointer from, size_t size, Stream& stream, bool wait) {
  if (size == 0) return kSuccess;
  if (to == 0 || from == 0) return kInvalidValue;
  if (pageable(from) && !wait) {
    const auto bytes = static_cast<const char*>(pointer(from));
    const auto staged = std::make_shared<std::vector<char>>(bytes, bytes + size);
    submitCopy(stream, [to, staged] { std::memcpy(view(pointer(to)), staged->data(), staged->size()); });
    return kSuccess;
  }
  submitCopy(stream, [to, from, size] { move(to, from, size); });
  return wait || pageable(to) ? stream.synchronize() : kSuccess;
}

Result set(DevicePointer to, int value, size_t size, Stream& stream, bool wait) {
  if (size == 0) return kSuccess;
  if (to == 0) return kInvalidValue;
  stream.submit([to, value, size] { std::memset(view(pointer(to)), value, size); });
  return wait ? stream.synchronize() : kSuccess;
}

}  // namespace

void softgpu_hold_copies(int hold) {
  const std::lock_guard guard(held().lock);
  held().hold = hold != 0;
  held().changed.notify_all();
}

void softgpu_refuse_copies(int refuse) {
  refusing = refuse != 0;
}

int softgpu_copies_under_way() {
  const std::lock_guard guard(held().lock);
  return held().underWay;
}

Result cuMemcpy(DevicePointer to, DevicePointer from, size_t size) {
  if (!mayDisturbCaptures()) return kCaptureUnsupported;
  if (!hasContext()) return kInvalidContext;
  return copy(to, from, size, streamOf(nullptr), true);
}

Result cuMemcpyAsync(DevicePointer to, DevicePointer from, size_t size, void* stream) {
  if (!hasContext()) return kInvalidContext;
  return copy(to, from, size, streamOf(stream), false);
}

SOFTGPU_API Result cuMemcpyHtoD_v2(DevicePointer to, const void* from, size_t size) {
  return cuMemcpy(to, reinterpret_cast<uintptr_t>(from), size);
}

SOFTGPU_API Result cuMemcpyDtoH_v2(void* to, DevicePointer from, size_t size) {
  return cuMemcpy(reinterpret_cast<uintptr_t>(to), from, size);
}

SOFTGPU_API Result cuMemcpyDtoD_v2(DevicePointer to, DevicePointer from, size_t size) {
  return cuMemcpy(to, from, size);
}

SOFTGPU_API Result cuMemcpyHtoDAsync_v2(DevicePointer to, const void* from, size_t size, void* stream) {
  return cuMemcpyAsync(to, reinterpret_cast<uintptr_t>(from), size, stream);
}

SOFTGPU_API Result cuMemcpyDtoHAsync_v2(void* to, DevicePointer from, size_t size, void* stream) {
  return cuMemcpyAsync(reinterpret_cast<uintptr_t>(to), from, size, stream);
}

SOFTGPU_API Result cuMemcpyDtoDAsync_v2(DevicePointer to, DevicePointer from, size_t size, void* stream) {
  if (refusing) return kUnknown;
  return cuMemcpyAsync(to, from, size, stream);
}

Result cuMemsetD8_v2(DevicePointer to, unsigned char value, size_t size) {
  if (!mayDisturbCaptures()) return kCaptureUnsupported;
  if (!hasContext()) return kInvalidContext;
  return set(to, value, size, streamOf(nullptr), true);
}

Result cuMemsetD8Async(DevicePointer to, unsigned char value, size_t size, void* stream) {
  if (!hasContext()) return kInvalidContext;
  return set(to, value, size, streamOf(stream), false);
}
