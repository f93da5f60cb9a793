// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/coll/gpu_memory.h"

#include <dlfcn.h>

#include "src/base/config.h"
#include "src/mem/gpu/abi.h"
#include "tests/support/catch.h"

namespace weft::test {

namespace {

template <class Function>
Function call(const char* name) {
  static void* const library = dlopen(cudaStandIn().c_str(), RTLD_NOW);
  REQUIRE(library);
  auto found = reinterpret_cast<Function>(dlsym(library, name));
  REQUIRE(found);
  return found;
}

using Functions = mem::gpu::Functions;

}  // namespace

std::string cudaStandIn() {
  const char* path = environmentValue("CUDA_STAND_IN");
  return path ? path : "";
}

GpuMemory::GpuMemory(coll::Group& group, size_t bytes) : group_(group) {
  mem::gpu::Address address = 0;
  REQUIRE(call<decltype(Functions::cuMemAlloc_v2)>("cuMemAlloc_v2")(&address, bytes) == 0);
  data_ = reinterpret_cast<std::byte*>(address);
  MemoryDesc desc;
  desc.address = data_;
  desc.length = bytes;
  desc.kind = MemoryKind::cuda;
  auto registered = group.registerMemory(desc);
  INFO((registered ? std::string() : registered.error().message()));
  REQUIRE(registered);
  handle_ = *registered;
}

GpuMemory::~GpuMemory() {
  CHECK(group_.deregisterMemory(handle_));
  CHECK(call<decltype(Functions::cuMemFree_v2)>("cuMemFree_v2")(reinterpret_cast<uintptr_t>(data_)) == 0);
}

}  // namespace weft::test
