// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tests/softgpu/ownership.h"
#include "tests/softgpu/report.h"
#include "tests/softgpu/runtime/runtime.h"

// What code that nvcc compiled calls before main and where it launches: declared in NVIDIA's
// crt/host_runtime.h.
namespace softgpu {

namespace {

// Kernels of all loaded libraries by their stubs on the host. Never destroyed: libraries leave in exit
// handlers.
struct Registry {
  std::mutex lock;
  std::map<const void*, void*> kernels;
};

Registry& registry() {
  static auto* const kRegistry = &immortal<Registry>();
  return *kRegistry;
}

}  // namespace

void* kernelOf(const void* symbol) {
  Registry& all = registry();
  const std::lock_guard guard(all.lock);
  const auto found = all.kernels.find(symbol);
  return found == all.kernels.end() ? nullptr : found->second;
}

}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API void** __cudaRegisterFatBinary(void* binary) {
  void* library = nullptr;
  cuLibraryLoadData(&library, binary, nullptr, nullptr, 0, nullptr, nullptr, 0);
  return handOut<void*>(library);
}

SOFTGPU_API void __cudaRegisterFatBinaryEnd(void**) {}

SOFTGPU_API void __cudaUnregisterFatBinary(void** handle) {
  cuLibraryUnload(*handle);
  takeBack(handle);
}

SOFTGPU_API char __cudaInitModule(void**) {
  return 1;
}

SOFTGPU_API void __cudaRegisterFunction(void** handle, const char* stub, char*, const char* name, int, void*,
                                        void*, void*, void*, int*) {
  Registry& all = registry();
  const std::lock_guard guard(all.lock);
  void*& kernel = all.kernels[stub];
  cuLibraryGetKernel(&kernel, *handle, name);
}

SOFTGPU_API void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}

SOFTGPU_API Result __cudaGetKernel(void** kernel, const void* stub) {
  *kernel = kernelOf(stub);
  return keep(*kernel == nullptr ? kNotFound : kSuccess);
}

// The launch syntax puts its configuration aside for the stub that it calls then.
namespace {

struct Configuration {
  Size3 grid, block;
  size_t shared;
  void* stream;
};
thread_local Configuration pushed;

Result launch(void* kernel, Size3 grid, Size3 block, void** arguments, size_t shared, void* stream) {
  if (kernel == nullptr) return keep(kNotFound);
  useContext();
  return keep(cuLaunchKernel(kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                             static_cast<unsigned>(shared), stream, arguments, nullptr));
}

}  // namespace

SOFTGPU_API unsigned __cudaPushCallConfiguration(Size3 grid, Size3 block, size_t shared, void* stream) {
  pushed = {grid, block, shared, stream};
  return 0;
}

SOFTGPU_API Result __cudaPopCallConfiguration(Size3* grid, Size3* block, size_t* shared, void* stream) {
  *grid = pushed.grid;
  *block = pushed.block;
  *shared = pushed.shared;
  *static_cast<void**>(stream) = pushed.stream;
  return kSuccess;
}

SOFTGPU_API Result __cudaLaunchKernel(void* kernel, Size3 grid, Size3 block, void** arguments, size_t shared,
                                      void* stream) {
  return launch(kernel, grid, block, arguments, shared, stream);
}

SOFTGPU_API Result cudaLaunchKernel(const void* stub, Size3 grid, Size3 block, void** arguments,
                                    size_t shared, void* stream) {
  return launch(kernelOf(stub), grid, block, arguments, shared, stream);
}

SOFTGPU_API Result cudaGetFuncBySymbol(void** function, const void* stub) {
  *function = kernelOf(stub);
  return keep(*function == nullptr ? kNotFound : kSuccess);
}

SOFTGPU_API Result cudaFuncSetAttribute(const void* stub, int attribute, int value) {
  return keep(cuFuncSetAttribute(kernelOf(stub), attribute, value));
}

namespace {

struct FunctionAttributes {  // cudaFuncAttributes
  size_t sharedBytes, constantBytes, localBytes;
  int mostThreads, registers, ptx, binary, cacheMode, mostDynamicShared, carveout;
  int clusters[6];
  int reserved[16];
};

}  // namespace

SOFTGPU_API Result cudaFuncGetAttributes(FunctionAttributes* attributes, const void* stub) {
  void* const kernel = kernelOf(stub);
  if (kernel == nullptr) return keep(kNotFound);
  *attributes = {};
  cuFuncGetAttribute(&attributes->mostThreads, 0, kernel);
  cuFuncGetAttribute(&attributes->ptx, 5, kernel);
  cuFuncGetAttribute(&attributes->binary, 6, kernel);
  attributes->mostDynamicShared = 49152;
  return kSuccess;
}
