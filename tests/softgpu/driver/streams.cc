// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <chrono>
#include <memory>

#include "tests/softgpu/capture.h"
#include "tests/softgpu/device.h"
#include "tests/softgpu/driver/driver.h"
#include "tests/softgpu/event.h"
#include "tests/softgpu/ownership.h"
#include "tests/softgpu/stream.h"

using namespace softgpu;

namespace {

std::shared_ptr<Completion> lastOf(Event& event) {
  const std::lock_guard guard(event.lock);
  return event.last;
}

}  // namespace

Result cuStreamCreate(void** stream, unsigned flags) {
  if (!hasContext()) return kInvalidContext;
  *stream = handOut<Stream>(currentDevice(), flags);
  return kSuccess;
}

SOFTGPU_API Result cuStreamCreateWithPriority(void** stream, unsigned flags, int) {
  return cuStreamCreate(stream, flags);
}

Result cuStreamDestroy_v2(void* handle) {
  constexpr uintptr_t kLastReserved = 2;
  if (reinterpret_cast<uintptr_t>(handle) <= kLastReserved) return kInvalidHandle;
  auto& stream = *static_cast<Stream*>(handle);
  if (const auto capture = stream.capture()) capture->forget(stream);
  stream.destroy();
  return kSuccess;
}

Result cuStreamSynchronize(void* stream) {
  return mayDisturbCaptures() ? streamOf(stream).synchronize() : kCaptureUnsupported;
}

Result cuStreamQuery(void* stream) {
  if (!mayDisturbCaptures()) return kCaptureUnsupported;
  return streamOf(stream).idle() ? kSuccess : kNotReady;
}

Result cuStreamGetFlags(void* stream, unsigned* flags) {
  *flags = streamOf(stream).flags();
  return kSuccess;
}

Result cuStreamGetId(void* stream, unsigned long long* id) {
  *id = streamOf(stream).id();
  return kSuccess;
}

SOFTGPU_API Result cuStreamGetPriority(void*, int* priority) {
  *priority = 0;
  return kSuccess;
}

SOFTGPU_API Result cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return kSuccess;
}

Result cuStreamWaitEvent(void* handle, void* eventHandle, unsigned flags) {
  constexpr unsigned kExternal = 1;
  Stream& stream = streamOf(handle);
  auto& event = *static_cast<Event*>(eventHandle);
  const auto capture = stream.capture();
  std::shared_ptr<Capture> recordedBy;
  int mark = -1;
  {
    const std::lock_guard guard(event.lock);
    recordedBy = event.capture.lock();
    mark = event.mark;
  }
  if (recordedBy && flags != kExternal) {
    if (capture && capture != recordedBy) return kCaptureInvalidated;
    if (!capture) stream.setCapture(recordedBy);
    recordedBy->waitMark(stream, mark);
    return kSuccess;
  }
  if (capture) {
    capture->waitExternal(stream, event);
    return kSuccess;
  }
  if (const auto last = lastOf(event)) stream.enqueue([last] { last->wait(); });
  return kSuccess;
}

Result cuLaunchHostFunc(void* stream, void (*function)(void*), void* argument) {
  streamOf(stream).submit([function, argument] { function(argument); });
  return kSuccess;
}

Result cuEventCreate(void** event, unsigned) {
  if (!hasContext()) return kInvalidContext;
  *event = handOut<Event>();
  return kSuccess;
}

Result cuEventDestroy_v2(void* handle) {
  auto* const event = static_cast<Event*>(handle);
  if (event == nullptr) return kInvalidHandle;
  if (!event->inGraph) takeBack(event);
  return kSuccess;
}

Result cuEventRecord(void* handle, void* streamHandle) {
  Stream& stream = streamOf(streamHandle);
  auto& event = *static_cast<Event*>(handle);
  if (const auto capture = stream.capture()) {
    capture->record(stream, event);
    return kSuccess;
  }
  const auto reached = std::make_shared<Completion>();
  {
    const std::lock_guard guard(event.lock);
    event.last = reached;
    event.capture.reset();
  }
  stream.enqueue([reached] { reached->set(); });
  return kSuccess;
}

SOFTGPU_API Result cuEventRecordWithFlags(void* event, void* stream, unsigned) {
  return cuEventRecord(event, stream);
}

Result cuEventQuery(void* event) {
  if (!mayDisturbCaptures()) return kCaptureUnsupported;
  const auto last = lastOf(*static_cast<Event*>(event));
  return !last || last->done() ? kSuccess : kNotReady;
}

Result cuEventSynchronize(void* event) {
  if (!mayDisturbCaptures()) return kCaptureUnsupported;
  if (const auto last = lastOf(*static_cast<Event*>(event))) last->wait();
  return kSuccess;
}

Result cuEventElapsedTime(float* milliseconds, void* from, void* to) {
  const auto first = lastOf(*static_cast<Event*>(from)), second = lastOf(*static_cast<Event*>(to));
  if (!first || !second) return kInvalidHandle;
  if (!first->done() || !second->done()) return kNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(second->at() - first->at()).count();
  return kSuccess;
}

SOFTGPU_API Result cuEventElapsedTime_v2(float* milliseconds, void* from, void* to) {
  return cuEventElapsedTime(milliseconds, from, to);
}
