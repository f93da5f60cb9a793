// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstring>

#include "tests/softgpu/capture.h"
#include "tests/softgpu/driver/driver.h"
#include "tests/softgpu/ownership.h"
#include "tests/softgpu/report.h"

using namespace softgpu;

namespace {

constexpr int kNotCapturing = 0;
constexpr int kCapturing = 1;

}  // namespace

Result cuThreadExchangeStreamCaptureMode(int* mode) {
  if (*mode < 0 || *mode > 2) return kInvalidValue;
  *mode = static_cast<int>(exchangeCaptureMode(static_cast<CaptureMode>(*mode)));
  return kSuccess;
}

Result cuStreamBeginCapture_v2(void* handle, int mode) {
  constexpr uintptr_t kLastReserved = 2;
  if (reinterpret_cast<uintptr_t>(handle) <= kLastReserved) return kCaptureUnsupported;
  Stream& stream = streamOf(handle);
  if (stream.capture() || mode < 0 || mode > 2) return kInvalidValue;
  stream.setCapture(Capture::begin(stream, static_cast<CaptureMode>(mode)));
  return kSuccess;
}

Result cuStreamEndCapture(void* handle, void** graph) {
  Stream& stream = streamOf(handle);
  const auto capture = stream.capture();
  if (!capture || &capture->origin() != &stream) return kInvalidValue;
  *graph = capture->end();
  return *graph == nullptr ? kCaptureInvalidated : kSuccess;
}

Result cuStreamIsCapturing(void* stream, int* status) {
  *status = streamOf(stream).capture() ? kCapturing : kNotCapturing;
  return kSuccess;
}

Result cuStreamGetCaptureInfo_v3(void* handle, int* status, uint64_t* id, void** graph, const void*** nodes,
                                 const void** edges, size_t* count) {
  Stream& stream = streamOf(handle);
  const auto capture = stream.capture();
  *status = capture ? kCapturing : kNotCapturing;
  if (!capture) return kSuccess;
  if (id != nullptr) *id = capture->id();
  if (graph != nullptr) *graph = capture->graph();
  if (edges != nullptr) *edges = nullptr;
  if (nodes != nullptr) {
    // The caller reads the list until its next call in this thread.
    thread_local const void* list[1];
    list[0] = capture->tip(stream);
    *nodes = list;
  }
  if (count != nullptr) *count = nodes != nullptr ? 1 : 0;
  return kSuccess;
}

Result cuStreamGetCaptureInfo_v2(void* stream, int* status, uint64_t* id, void** graph, const void*** nodes,
                                 size_t* count) {
  return cuStreamGetCaptureInfo_v3(stream, status, id, graph, nodes, nullptr, count);
}

// Replacing dependencies by others is treated as adding them: the stream waits for more than it has to, never
// for less.
Result cuStreamUpdateCaptureDependencies_v2(void* handle, void** nodes, const void*, size_t count, unsigned) {
  Stream& stream = streamOf(handle);
  const auto capture = stream.capture();
  if (!capture) return kInvalidValue;
  for (size_t i = 0; i < count; ++i) {
    const auto* node = static_cast<const GraphNode*>(nodes[i]);
    if (node->mark >= 0) capture->waitMark(stream, node->mark);
  }
  return kSuccess;
}

SOFTGPU_API Result cuStreamUpdateCaptureDependencies(void* stream, void** nodes, size_t count,
                                                     unsigned flags) {
  return cuStreamUpdateCaptureDependencies_v2(stream, nodes, nullptr, count, flags);
}

Result cuGraphAddEventRecordNode(void** node, void* graph, const void* const*, size_t, void* handle) {
  auto& body = *static_cast<Graph*>(graph)->body;
  auto* const event = static_cast<Event*>(handle);
  const std::lock_guard guard(body.lock);
  event->inGraph = true;
  body.recorded.push_back(event);
  body.nodes.push_back({});
  *node = &body.nodes.back();
  return kSuccess;
}

// Only record nodes are added by hand, and they come last in any case.
Result cuGraphAddDependencies_v2(void*, const void* const*, const void* const* to, const void*,
                                 size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (static_cast<const GraphNode*>(to[i])->mark >= 0)
      return unsupported("cuGraphAddDependencies", "edges between captured nodes");
  }
  return kSuccess;
}

SOFTGPU_API Result cuGraphAddDependencies(void* graph, const void* const* from, const void* const* to,
                                          size_t count) {
  return cuGraphAddDependencies_v2(graph, from, to, nullptr, count);
}

Result cuUserObjectCreate(void** object, void* pointer, void (*destroy)(void*), unsigned count, unsigned) {
  *object = handOut<UserObject>(pointer, destroy, count);
  return kSuccess;
}

Result cuUserObjectRelease(void* object, unsigned count) {
  static_cast<UserObject*>(object)->release(count);
  return kSuccess;
}

Result cuGraphRetainUserObject(void* graph, void* handle, unsigned count, unsigned flags) {
  constexpr unsigned kMove = 1;
  auto& body = *static_cast<Graph*>(graph)->body;
  auto* const object = static_cast<UserObject*>(handle);
  if (flags != kMove) object->retain(count);
  const std::lock_guard guard(body.lock);
  body.objects.insert(body.objects.end(), count, object);
  return kSuccess;
}

Result cuGraphInstantiateWithFlags(void** run, void* graph, unsigned long long) {
  *run = handOut<Graph>(*static_cast<Graph*>(graph));
  return kSuccess;
}

SOFTGPU_API Result cuGraphUpload(void*, void*) {
  return kSuccess;
}

Result cuGraphLaunch(void* run, void* stream) {
  Stream& target = streamOf(stream);
  if (target.capture()) return unsupported("cuGraphLaunch", "into a stream that is captured");
  launchGraph(static_cast<Graph*>(run)->body, target);
  return kSuccess;
}

Result cuGraphExecDestroy(void* run) {
  takeBack(static_cast<Graph*>(run));
  return kSuccess;
}

Result cuGraphDestroy(void* graph) {
  takeBack(static_cast<Graph*>(graph));
  return kSuccess;
}
