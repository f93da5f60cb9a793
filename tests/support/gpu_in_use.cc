// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/support/gpu_in_use.h"

#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <sys/mman.h>

#include "src/base/log.h"

namespace weft::test {

namespace {

// Never closed: the context lives as long as the process.
void* driverLibrary() {
  static void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  return library;
}

template <class Function>
Function* symbol(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(driverLibrary(), name));
}

}  // namespace

bool isSoftwareGpu() {
  return driverLibrary() != nullptr && ::dlsym(driverLibrary(), "softgpu_refuses_nccl") != nullptr;
}

GpuInUse::GpuInUse() {
  if (driverLibrary() == nullptr) {
    const char* reason = ::dlerror();
    why_ = std::string("no CUDA driver: ") + (reason ? reason : "libcuda.so.1 cannot be opened");
    return;
  }
  void* context = nullptr;
  int code = symbol<int(unsigned)>("cuInit")(0);
  if (code == 0) code = symbol<int(void**, int)>("cuDevicePrimaryCtxRetain")(&context, 0);
  if (code == 0) code = symbol<int(void*)>("cuCtxSetCurrent")(context);
  if (code != 0) why_ = format("GPU 0 gives no context: CUDA error %d", code);
}

HeldCopies::HeldCopies() {
  symbol<void(int)>("softgpu_hold_copies")(1);
}

HeldCopies::~HeldCopies() {
  symbol<void(int)>("softgpu_hold_copies")(0);
}

int HeldCopies::underWay() const {
  return symbol<int()>("softgpu_copies_under_way")();
}

HeldKernel::HeldKernel() {
  symbol<void(int)>("softgpu_hold_kernel")(1);
}

HeldKernel::~HeldKernel() {
  symbol<void(int)>("softgpu_hold_kernel")(0);
}

int HeldKernel::callsThatWait() const {
  return symbol<int()>("softgpu_calls_that_wait")();
}

FailingCopies::FailingCopies() {
  symbol<void(int)>("softgpu_refuse_copies")(1);
}

FailingCopies::~FailingCopies() {
  symbol<void(int)>("softgpu_refuse_copies")(0);
}

std::string whyNoSoftwareCard(const mem::gpu::Driver& driver) {
  constexpr size_t kBytes = size_t{2} << 20;
  const auto piece = driver.allocate(0, kBytes);
  if (!piece) return piece.error().message();
  const auto descriptor = driver.exportDmabuf((*piece)->data(), kBytes, false);
  if (!descriptor) return descriptor.error().message();
  void* at = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor->get(), 0);
  if (at == MAP_FAILED)
    return format("no processor can map a dma-buf of this GPU (error %d), so there is no card in software",
                  errno);
  ::munmap(at, kBytes);
  return {};
}

}  // namespace weft::test
