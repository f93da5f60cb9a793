// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softgpu/runtime/runtime.h"

using namespace softgpu;

// With CUDA 13 the plain names took the shapes of the later versions.
SOFTGPU_API Result cudaStreamGetCaptureInfo(void* stream, int* status, uint64_t* id, void** graph,
                                            const void*** nodes, const void** edges, size_t* count) {
  return keep(cuStreamGetCaptureInfo_v3(stream, status, id, graph, nodes, edges, count));
}
SOFTGPU_API Result cudaStreamUpdateCaptureDependencies(void* stream, void** nodes, const void* edges,
                                                       size_t count, unsigned flags) {
  return keep(cuStreamUpdateCaptureDependencies_v2(stream, nodes, edges, count, flags));
}
SOFTGPU_API Result cudaGraphAddDependencies(void* graph, const void* const* from, const void* const* to,
                                            const void* edges, size_t count) {
  return keep(cuGraphAddDependencies_v2(graph, from, to, edges, count));
}
SOFTGPU_API Result cudaMemcpyBatchAsync(void* const* to, const void* const* from, const size_t* sizes,
                                        size_t count, const void*, const size_t*, size_t, void* stream) {
  useContext();
  return keep(copyBatch(to, from, sizes, count, stream));
}
