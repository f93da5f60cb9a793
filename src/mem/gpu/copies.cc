// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/mem/gpu/copies.h"

#include "src/base/log.h"
#include "src/mem/gpu/scopes.h"

// The calls of the driver behind copies.h, and pinned host memory. Every function enters relaxed capture mode
// first (scopes.h): NCCL may be capturing a graph on another thread.
namespace weft::mem::gpu {

using Flight = Driver::Copies::Flight;

Result<std::unique_ptr<Driver::Copies>> Driver::Copies::open(std::shared_ptr<const Driver> driver, int gpu) {
  const Functions& call = driver->call_;
  const Relaxed relaxed(call);
  const InContext inside(call, gpu);
  Stream stream = nullptr;
  Result32 code = inside.code();
  if (code == kSuccess) code = call.cuStreamCreate(&stream, kNonBlockingStream);
  if (code == kSuccess && !driver->keepContext(gpu)) {
    (void)call.cuStreamDestroy_v2(stream);
    code = kDeinitialized;
  }
  if (code != kSuccess) return driver->failed("making a stream for copies", format("GPU %d", gpu), code);
  return std::make_unique<Copies>(std::move(driver), gpu, stream);
}

Driver::Copies::Copies(std::shared_ptr<const Driver> driver, int gpu, Stream stream)
    : driver_(std::move(driver)), gpu_(gpu), stream_(stream) {}

// cuStreamDestroy returns at once, and the driver frees the stream when the copies on it are done. The
// context that open() kept is let go of after the stream, outside the scope that has it current.
Driver::Copies::~Copies() {
  const Functions& call = driver_->call_;
  const Relaxed relaxed(call);
  {
    const InContext inside(call, gpu_);
    (void)call.cuStreamDestroy_v2(stream_);
  }
  int device = 0;
  if (call.cuDeviceGet(&device, gpu_) == kSuccess) (void)call.cuDevicePrimaryCtxRelease_v2(device);
}

template <class Copy>
Result<std::shared_ptr<const Flight>> Driver::Copies::begin(const char* what, size_t bytes, Copy copy) {
  const Functions& call = driver_->call_;
  const Relaxed relaxed(call);
  const InContext inside(call, gpu_);
  Event event = nullptr;
  Result32 code = inside.code();
  if (code == kSuccess) code = call.cuEventCreate(&event, kEventWithoutTime);
  if (code != kSuccess) return driver_->failed(what, format("an event of GPU %d", gpu_), code);
  auto flight = std::make_shared<const Flight>(driver_, gpu_, event);
  code = copy(call, stream_);
  if (code == kSuccess) code = call.cuEventRecord(event, stream_);
  if (code == kSuccess) return flight;
  return driver_->failed(what, format("%zu bytes, GPU %d", bytes, gpu_), code);
}

Result<std::shared_ptr<const Flight>> Driver::Copies::within(void* to, const void* from, size_t bytes) {
  return begin("copying between GPU memory", bytes, [=](const Functions& call, Stream stream) {
    return call.cuMemcpyDtoDAsync_v2(reinterpret_cast<uintptr_t>(to), reinterpret_cast<uintptr_t>(from),
                                     bytes, stream);
  });
}

Result<std::shared_ptr<const Flight>> Driver::Copies::toGpu(void* to, const void* from, size_t bytes) {
  return begin("copying to a GPU", bytes, [=](const Functions& call, Stream stream) {
    return call.cuMemcpyHtoDAsync_v2(reinterpret_cast<uintptr_t>(to), from, bytes, stream);
  });
}

Result<std::shared_ptr<const Flight>> Driver::Copies::fromGpu(void* to, const void* from, size_t bytes) {
  return begin("copying from a GPU", bytes, [=](const Functions& call, Stream stream) {
    return call.cuMemcpyDtoHAsync_v2(to, reinterpret_cast<uintptr_t>(from), bytes, stream);
  });
}

// An event that has not happened yet may be destroyed; the driver frees it when it has (cuEventDestroy).
Flight::~Flight() {
  const Relaxed relaxed(driver_->call_);
  (void)driver_->call_.cuEventDestroy_v2(event_);
}

Flight::State Flight::state() const {
  const Relaxed relaxed(driver_->call_);
  const Result32 code = driver_->call_.cuEventQuery(event_);
  return code == kSuccess ? State::done : code == kNotReady ? State::underWay : State::failed;
}

std::string Flight::why() const {
  const Relaxed relaxed(driver_->call_);
  const Result32 code = driver_->call_.cuEventQuery(event_);
  return driver_->failed("copying GPU memory", format("GPU %d", gpu_), code).message();
}

Result<void*> Driver::pinned(int gpu, size_t bytes) const {
  if (!call_.cuMemHostAlloc || !call_.cuMemFreeHost)
    return Error(Code::unavailable, "allocating pinned memory", versionText() + " offers none");
  const Relaxed relaxed(call_);
  const InContext inside(call_, gpu);
  void* data = nullptr;
  Result32 code = inside.code();
  if (code == kSuccess) code = call_.cuMemHostAlloc(&data, bytes, 0);
  if (code == kSuccess) return data;
  return failed("allocating pinned memory", format("%zu bytes for GPU %d", bytes, gpu), code);
}

void Driver::unpin(int gpu, void* address) const {
  const Relaxed relaxed(call_);
  const InContext inside(call_, gpu);
  (void)call_.cuMemFreeHost(address);
}

Result<std::unique_ptr<PinnedBytes>> PinnedBytes::allocate(std::shared_ptr<const Driver> driver, int gpu,
                                                           size_t bytes) {
  TRY(void* data, driver->pinned(gpu, bytes));
  return std::make_unique<PinnedBytes>(std::move(driver), gpu, data, bytes);
}

PinnedBytes::~PinnedBytes() {
  driver_->unpin(gpu_, data_);
}

}  // namespace weft::mem::gpu
