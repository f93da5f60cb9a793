// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>

#include "tests/softgpu/driver/driver.h"
#include "tests/softgpu/event.h"
#include "tests/softgpu/kernels/kernel.h"
#include "tests/softgpu/kernels/layout.h"
#include "tests/softgpu/ownership.h"
#include "tests/softgpu/report.h"
#include "tests/softgpu/running.h"
#include "tests/softgpu/settings.h"
#include "tests/softgpu/stream.h"

using namespace softgpu;

namespace {

// A library of kernels: where its code lies tells which program it belongs to.
struct Library {
  const void* code;
};

// The parameters as one block of bytes: they were given so, or one by one and the kernel knows their sizes.
bool parametersOf(const Kernel& kernel, void** parameters, void** extra, std::vector<char>& bytes) {
  if (extra == nullptr) return gatherParameters(kernel, parameters, bytes);
  const void* buffer = nullptr;
  size_t size = 0;
  for (size_t i = 0; extra[i] != nullptr; i += 2) {
    const auto what = reinterpret_cast<uintptr_t>(extra[i]);
    if (what == kParameterBuffer) buffer = extra[i + 1];
    if (what == kParameterSize) size = *static_cast<size_t*>(extra[i + 1]);
  }
  if (buffer == nullptr) return false;
  bytes.assign(static_cast<const char*>(buffer), static_cast<const char*>(buffer) + size);
  return true;
}

}  // namespace

const char* softgpu_refuses_nccl(int version) {
  thread_local char text[300];
  const std::string refusal = layoutRefusal(version);
  refusal.copy(text, sizeof text - 1);
  text[std::min(refusal.size(), sizeof text - 1)] = '\0';
  return refusal.empty() ? nullptr : text;
}

Result cuLibraryLoadData(void** library, const void* code, int*, void**, unsigned, int*, void**, unsigned) {
  *library = handOut<Library>(Library{code});
  return kSuccess;
}

Result cuLibraryUnload(void* library) {
  takeBack(static_cast<Library*>(library));
  return kSuccess;
}

// Kernels stay: whoever launches may still hold one.
Result cuLibraryGetKernel(void** kernel, void* library, const char* name) {
  *kernel = handOut<Kernel>(Kernel{name, static_cast<Library*>(library)->code});
  return kSuccess;
}

Result cuKernelGetFunction(void** function, void* kernel) {
  *function = kernel;
  return kSuccess;
}

Result cuFuncGetAttribute(int* value, int attribute, void*) {
  constexpr int kMostThreads = 0, kBinaryVersion = 6, kPtxVersion = 5;
  const int architecture = static_cast<int>(settings().major * 10 + settings().minor);
  *value = 0;
  if (attribute == kMostThreads) *value = 1024;
  if (attribute == kBinaryVersion || attribute == kPtxVersion) *value = architecture;
  return kSuccess;
}

Result cuFuncSetAttribute(void*, int, int) {
  return kSuccess;
}

SOFTGPU_API Result cuKernelGetAttribute(int* value, int attribute, void* kernel, int) {
  return cuFuncGetAttribute(value, attribute, kernel);
}

SOFTGPU_API Result cuKernelSetAttribute(int, int, void*, int) {
  return kSuccess;
}

Result cuLaunchKernelEx(const LaunchConfig* config, void* function, void** parameters, void** extra) {
  const auto& kernel = *static_cast<Kernel*>(function);
  Launch launch;
  launch.blocks = config->grid[0] * config->grid[1] * config->grid[2];
  if (!parametersOf(kernel, parameters, extra, launch.parameters))
    return unsupported("cuLaunchKernel", kernel.name.c_str());
  const Result prepared = prepareLaunch(kernel, launch);
  if (prepared != kSuccess) return prepared;
  Stream& stream = streamOf(config->stream);
  const auto run = std::make_shared<Launch>(std::move(launch));
  stream.submit([run] {
    const RunningKernel runs;
    run->play(*run);
  });
  for (unsigned i = 0; i < config->attributeCount; ++i) {
    const auto& attribute = config->attributes[i];
    if (attribute.id == kAttributeLaunchCompletion)
      cuEventRecord(attribute.value.launchCompletion.event, config->stream);
  }
  return kSuccess;
}

Result cuLaunchKernel(void* function, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX,
                      unsigned blockY, unsigned blockZ, unsigned sharedBytes, void* stream, void** parameters,
                      void** extra) {
  LaunchConfig config{};
  const unsigned grid[3] = {gridX, gridY, gridZ}, block[3] = {blockX, blockY, blockZ};
  std::memcpy(config.grid, grid, sizeof grid);
  std::memcpy(config.block, block, sizeof block);
  config.sharedBytes = sharedBytes;
  config.stream = stream;
  return cuLaunchKernelEx(&config, function, parameters, extra);
}
