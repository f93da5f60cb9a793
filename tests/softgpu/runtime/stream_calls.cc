// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softgpu/runtime/runtime.h"

using namespace softgpu;

SOFTGPU_API Result cudaStreamCreate(void** stream) {
  useContext();
  return keep(cuStreamCreate(stream, 0));
}
SOFTGPU_API Result cudaStreamCreateWithFlags(void** stream, unsigned flags) {
  useContext();
  return keep(cuStreamCreate(stream, flags));
}
SOFTGPU_API Result cudaStreamCreateWithPriority(void** stream, unsigned flags, int) {
  useContext();
  return keep(cuStreamCreate(stream, flags));
}
SOFTGPU_API Result cudaStreamDestroy(void* stream) {
  return keep(cuStreamDestroy_v2(stream));
}
SOFTGPU_API Result cudaStreamSynchronize(void* stream) {
  useContext();
  return keep(cuStreamSynchronize(stream));
}
SOFTGPU_API Result cudaStreamQuery(void* stream) {
  return keep(cuStreamQuery(stream));
}
SOFTGPU_API Result cudaStreamWaitEvent(void* stream, void* event, unsigned flags) {
  return keep(cuStreamWaitEvent(stream, event, flags));
}
SOFTGPU_API Result cudaStreamGetFlags(void* stream, unsigned* flags) {
  return keep(cuStreamGetFlags(stream, flags));
}
SOFTGPU_API Result cudaStreamGetId(void* stream, unsigned long long* id) {
  return keep(cuStreamGetId(stream, id));
}
SOFTGPU_API Result cudaLaunchHostFunc(void* stream, void (*function)(void*), void* argument) {
  useContext();
  return keep(cuLaunchHostFunc(stream, function, argument));
}
SOFTGPU_API Result cudaEventCreate(void** event) {
  useContext();
  return keep(cuEventCreate(event, 0));
}
SOFTGPU_API Result cudaEventCreateWithFlags(void** event, unsigned flags) {
  useContext();
  return keep(cuEventCreate(event, flags));
}
SOFTGPU_API Result cudaEventDestroy(void* event) {
  return keep(cuEventDestroy_v2(event));
}
SOFTGPU_API Result cudaEventRecord(void* event, void* stream) {
  useContext();
  return keep(cuEventRecord(event, stream));
}
SOFTGPU_API Result cudaEventRecordWithFlags(void* event, void* stream, unsigned) {
  return keep(cuEventRecord(event, stream));
}
SOFTGPU_API Result cudaEventQuery(void* event) {
  return keep(cuEventQuery(event));
}
SOFTGPU_API Result cudaEventSynchronize(void* event) {
  return keep(cuEventSynchronize(event));
}
SOFTGPU_API Result cudaEventElapsedTime(float* milliseconds, void* from, void* to) {
  return keep(cuEventElapsedTime(milliseconds, from, to));
}

SOFTGPU_API Result cudaThreadExchangeStreamCaptureMode(int* mode) {
  return keep(cuThreadExchangeStreamCaptureMode(mode));
}
SOFTGPU_API Result cudaStreamBeginCapture(void* stream, int mode) {
  return keep(cuStreamBeginCapture_v2(stream, mode));
}
SOFTGPU_API Result cudaStreamEndCapture(void* stream, void** graph) {
  return keep(cuStreamEndCapture(stream, graph));
}
SOFTGPU_API Result cudaStreamIsCapturing(void* stream, int* status) {
  return keep(cuStreamIsCapturing(stream, status));
}
SOFTGPU_API Result cudaStreamGetCaptureInfo_v2(void* stream, int* status, uint64_t* id, void** graph,
                                               const void*** nodes, size_t* count) {
  return keep(cuStreamGetCaptureInfo_v2(stream, status, id, graph, nodes, count));
}
SOFTGPU_API Result cudaStreamGetCaptureInfo_v3(void* stream, int* status, uint64_t* id, void** graph,
                                               const void*** nodes, const void** edges, size_t* count) {
  return keep(cuStreamGetCaptureInfo_v3(stream, status, id, graph, nodes, edges, count));
}
SOFTGPU_API Result cudaStreamUpdateCaptureDependencies_v2(void* stream, void** nodes, const void* edges,
                                                          size_t count, unsigned flags) {
  return keep(cuStreamUpdateCaptureDependencies_v2(stream, nodes, edges, count, flags));
}
SOFTGPU_API Result cudaGraphAddDependencies_v2(void* graph, const void* const* from, const void* const* to,
                                               const void* edges, size_t count) {
  return keep(cuGraphAddDependencies_v2(graph, from, to, edges, count));
}

SOFTGPU_API Result cudaGraphAddEventRecordNode(void** node, void* graph, const void* const* nodes,
                                               size_t count, void* event) {
  return keep(cuGraphAddEventRecordNode(node, graph, nodes, count, event));
}
SOFTGPU_API Result cudaUserObjectCreate(void** object, void* pointer, void (*destroy)(void*), unsigned count,
                                        unsigned flags) {
  return keep(cuUserObjectCreate(object, pointer, destroy, count, flags));
}
SOFTGPU_API Result cudaUserObjectRelease(void* object, unsigned count) {
  return keep(cuUserObjectRelease(object, count));
}
SOFTGPU_API Result cudaGraphRetainUserObject(void* graph, void* object, unsigned count, unsigned flags) {
  return keep(cuGraphRetainUserObject(graph, object, count, flags));
}
SOFTGPU_API Result cudaGraphInstantiateWithFlags(void** run, void* graph, unsigned long long flags) {
  return keep(cuGraphInstantiateWithFlags(run, graph, flags));
}
SOFTGPU_API Result cudaGraphInstantiate(void** run, void* graph, unsigned long long flags) {
  return keep(cuGraphInstantiateWithFlags(run, graph, flags));
}
SOFTGPU_API Result cudaGraphLaunch(void* run, void* stream) {
  return keep(cuGraphLaunch(run, stream));
}
SOFTGPU_API Result cudaGraphExecDestroy(void* run) {
  return keep(cuGraphExecDestroy(run));
}
SOFTGPU_API Result cudaGraphDestroy(void* graph) {
  return keep(cuGraphDestroy(graph));
}
