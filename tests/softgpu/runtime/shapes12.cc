// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softgpu/runtime/runtime.h"

using namespace softgpu;

// Up to CUDA 12 the plain names have their first shapes.
SOFTGPU_API Result cudaStreamGetCaptureInfo(void* stream, int* status, uint64_t* id) {
  return keep(cuStreamGetCaptureInfo_v2(stream, status, id, nullptr, nullptr, nullptr));
}
SOFTGPU_API Result cudaStreamUpdateCaptureDependencies(void* stream, void** nodes, size_t count,
                                                       unsigned flags) {
  return keep(cuStreamUpdateCaptureDependencies_v2(stream, nodes, nullptr, count, flags));
}
SOFTGPU_API Result cudaGraphAddDependencies(void* graph, const void* const* from, const void* const* to,
                                            size_t count) {
  return keep(cuGraphAddDependencies_v2(graph, from, to, nullptr, count));
}
SOFTGPU_API Result cudaMemcpyBatchAsync(void* const* to, const void* const* from, const size_t* sizes,
                                        size_t count, const void*, const size_t*, size_t, size_t* failed,
                                        void* stream) {
  useContext();
  if (failed != nullptr) *failed = SIZE_MAX;  // no copy in particular
  return keep(copyBatch(to, from, sizes, count, stream));
}
