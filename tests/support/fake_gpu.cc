// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/support/fake_gpu.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>

namespace weft::test {

namespace {

using mem::gpu::Address;
using mem::gpu::Result32;

FakeGpu* theOne = nullptr;
thread_local int captureModeOfThread = 0;

class CardMemory : public Memory {
 public:
  explicit CardMemory(std::shared_ptr<std::atomic<size_t>> live) : live_(std::move(live)) { ++*live_; }
  ~CardMemory() override { --*live_; }
  std::span<const std::byte> blob() const override { return {}; }

 private:
  std::shared_ptr<std::atomic<size_t>> live_;
};

struct FakeGpuCalls {
  static constexpr Result32 kInvalid = mem::gpu::kInvalidValue;

  static Result32 init(unsigned) { return 0; }
  static Result32 version(int* out) { return *out = theOne->version, 0; }
  static Result32 errorName(Result32 code, const char** name) {
    *name = code == mem::gpu::kNotSupported  ? "CUDA_ERROR_NOT_SUPPORTED"
            : code == mem::gpu::kOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY"
                                             : "CUDA_ERROR_OF_A_TEST";
    return 0;
  }
  static Result32 count(int* out) { return *out = theOne->gpus, 0; }
  static Result32 get(int* device, int ordinal) {
    *device = 100 + ordinal;  // a handle is not a number
    return ordinal < theOne->gpus ? 0 : kInvalid;
  }
  static Result32 name(char* text, int length, int) {
    return std::snprintf(text, static_cast<size_t>(length), "fake"), 0;
  }
  static Result32 bus(char* text, int length, int) {
    return std::snprintf(text, static_cast<size_t>(length), "0000:01:00.0"), 0;
  }
  static Result32 attribute(int* value, int attribute, int) {
    switch (attribute) {
      case mem::gpu::kDmabufSupported:
        return *value = theOne->dmabuf, 0;
      case mem::gpu::kGpuDirectRdma:
        return *value = theOne->directRdma, 0;
      case mem::gpu::kHostPageTables:
        return *value = theOne->coherent, 0;
      case mem::gpu::kWritesOrdering:
        return *value = theOne->ordered ? 100 : 0, 0;
      default:
        return *value = 0, 0;
    }
  }
  static Result32 current(int* device) { return *device = 101, theOne->inUse ? 0 : 201; }
  static Result32 push(void*) { return theOne->pushed++, 0; }
  static Result32 pop(void**) { return theOne->pushed--, 0; }
  static Result32 retain(void** context, int) { return *context = theOne, 0; }
  static Result32 release(int) { return 0; }
  static Result32 state(int, unsigned* flags, int* active) { return *flags = 0, *active = 0, 0; }
  static Result32 allocate(Address* address, size_t bytes) {
    if (theOne->memoryShort || theOne->pushed == 0) return mem::gpu::kOutOfMemory;
    *address = reinterpret_cast<uintptr_t>(theOne->allocateAt(uintptr_t{1} << 40, bytes, 1));
    return 0;
  }
  static Result32 free(Address address) {
    return theOne->memory.erase(static_cast<uintptr_t>(address)) == 1 ? 0 : kInvalid;
  }
  static Result32 toGpu(Address, const void*, size_t, void*) { return 0; }
  static Result32 fromGpu(void*, Address, size_t, void*) { return 0; }
  static Result32 makeStream(void** stream, unsigned) { return *stream = theOne, 0; }
  static Result32 onStream(void*) { return 0; }
  static Result32 capture(int* mode) { return std::swap(*mode, captureModeOfThread), 0; }
  static Result32 pointer(unsigned count, int* attributes, void** values, Address address) {
    auto found = theOne->memory.upper_bound(static_cast<uintptr_t>(address));
    if (found == theOne->memory.begin()) return kInvalid;
    --found;
    const FakeGpu::Piece& piece = found->second;
    if (address >= found->first + piece.bytes) return 0;  // as NVIDIA's does: nothing is said, and no error
    for (unsigned i = 0; i < count; i++) {
      if (attributes[i] == mem::gpu::kMemoryType) *static_cast<unsigned*>(values[i]) = piece.type;
      if (attributes[i] == mem::gpu::kIsManaged) *static_cast<unsigned*>(values[i]) = piece.managed;
      if (attributes[i] == mem::gpu::kDeviceOrdinal) *static_cast<int*>(values[i]) = piece.gpu;
      if (attributes[i] == mem::gpu::kBufferId) *static_cast<unsigned long long*>(values[i]) = piece.number;
      if (attributes[i] == mem::gpu::kRangeStart) *static_cast<Address*>(values[i]) = found->first;
      if (attributes[i] == mem::gpu::kRangeSize) *static_cast<size_t*>(values[i]) = piece.bytes;
    }
    return 0;
  }
  static Result32 handle(void* out, Address address, size_t bytes, int, unsigned long long flags) {
    const bool pcie = (flags & mem::gpu::kPcieMapping) != 0;
    if (theOne->exportFails != 0) return theOne->exportFails;
    if (pcie && !theOne->takesPcieFlag) return mem::gpu::kNotSupported;
    const std::lock_guard lock(theOne->mutex);
    theOne->exported.push_back({static_cast<uintptr_t>(address), bytes, pcie});
    *static_cast<int*>(out) = open("/dev/null", O_RDWR | O_CLOEXEC);
    return 0;
  }
};

}  // namespace

int FakeGpu::captureMode() {
  return captureModeOfThread;
}

FakeGpu::FakeGpu() {
  theOne = this;
}

FakeGpu::~FakeGpu() {
  theOne = nullptr;
}

std::shared_ptr<const mem::gpu::Driver> FakeGpu::driver() {
  using Calls = FakeGpuCalls;
  mem::gpu::Functions all;
  all.cuInit = Calls::init;
  all.cuDriverGetVersion = Calls::version;
  all.cuGetErrorName = Calls::errorName;
  all.cuDeviceGetCount = Calls::count;
  all.cuDeviceGet = Calls::get;
  all.cuDeviceGetName = Calls::name;
  all.cuDeviceGetPCIBusId = Calls::bus;
  all.cuDeviceGetAttribute = Calls::attribute;
  all.cuCtxGetDevice = Calls::current;
  all.cuCtxPushCurrent_v2 = Calls::push;
  all.cuCtxPopCurrent_v2 = Calls::pop;
  all.cuDevicePrimaryCtxRetain = Calls::retain;
  all.cuDevicePrimaryCtxRelease_v2 = Calls::release;
  all.cuDevicePrimaryCtxGetState = Calls::state;
  all.cuMemAlloc_v2 = Calls::allocate;
  all.cuMemFree_v2 = Calls::free;
  all.cuMemcpyHtoDAsync_v2 = Calls::toGpu;
  all.cuMemcpyDtoHAsync_v2 = Calls::fromGpu;
  all.cuStreamCreate = Calls::makeStream;
  all.cuStreamDestroy_v2 = Calls::onStream;
  all.cuStreamSynchronize = Calls::onStream;
  all.cuThreadExchangeStreamCaptureMode = Calls::capture;
  all.cuPointerGetAttributes = Calls::pointer;
  if (exports) all.cuMemGetHandleForAddressRange = Calls::handle;
  auto driver = mem::gpu::Driver::over(all);
  return driver ? driver.take() : nullptr;
}

void* FakeGpu::allocateAt(uintptr_t address, size_t bytes, int gpu, unsigned type, bool managed) {
  memory[address] = {bytes, gpu, type, managed, numbers ? ++lastNumber_ : 0};
  return reinterpret_cast<void*>(address);
}

void FakeGpu::free(void* address) {
  memory.erase(reinterpret_cast<uintptr_t>(address));
}

FakeCard::FakeCard() {
  info_.name = "card0";
  info_.cudaMemory = info_.dmabufMemory = info_.offload = true;
}

Result<std::unique_ptr<Memory>> FakeCard::registerMemory(const MemoryDesc& desc) {
  const int refusal = desc.direct                       ? refusesDirect
                      : desc.kind == MemoryKind::dmabuf ? refusesDmabuf
                      : desc.kind == MemoryKind::cuda   ? refusesAddress
                                                        : 0;
  if (refusal != 0)
    return Error(refusal == ENOMEM ? Code::resources : Code::system, "registering memory", "the card refuses",
                 refusal);
  if (desc.length > longest) return Error(Code::system, "registering memory", "too long", EFBIG);
  if (*live_ >= most) return Error(Code::resources, "registering memory", "the table is full", ENOMEM);
  const std::lock_guard lock(mutex_);
  registered.push_back(desc);
  return std::unique_ptr<Memory>(std::make_unique<CardMemory>(live_));
}

Result<std::unique_ptr<Queue>> FakeCard::openQueue(const QueueDepths&) {
  return Error(Code::unavailable, "opening a queue", "a card for registrations only");
}

}  // namespace weft::test
