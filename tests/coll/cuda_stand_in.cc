// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <sys/mman.h>
#include <unistd.h>

#include "src/mem/gpu/abi.h"

// A library with what weft needs of libcuda.so.1, for one GPU whose memory is a file: the groups take it for
// a GPU's, the loop provider maps it, and a test may read it. Writes of a card must be flushed there. Any
// thread.
using namespace weft::mem::gpu;

namespace {

struct Piece {
  size_t bytes = 0;
  int fd = -1;
  unsigned long long number = 0;
};

struct State {
  std::mutex mutex;
  std::map<uintptr_t, Piece> pieces;
  unsigned long long last = 0;
};
State state;

constexpr size_t kPage = 65536;

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

Result32 cuInit(unsigned) {
  return 0;
}
Result32 cuDriverGetVersion(int* version) {
  return *version = 13000, 0;
}
Result32 cuGetErrorName(Result32, const char** name) {
  return *name = "CUDA_ERROR_OF_A_TEST", 0;
}
Result32 cuDeviceGetCount(int* count) {
  return *count = 1, 0;
}
Result32 cuDeviceGet(int* device, int) {
  return *device = 0, 0;
}
Result32 cuDeviceGetName(char* name, int length, int) {
  return std::strncpy(name, "stand-in", static_cast<size_t>(length)), 0;
}
Result32 cuDeviceGetPCIBusId(char* text, int length, int) {
  return std::strncpy(text, "0000:01:00.0", static_cast<size_t>(length)), 0;
}
Result32 cuDeviceGetAttribute(int* value, int attribute, int) {
  return *value = attribute == kDmabufSupported || attribute == kGpuDirectRdma, 0;
}
Result32 cuMemHostAlloc(void** address, size_t bytes, unsigned) {
  return *address = std::malloc(bytes), *address ? 0 : 2;
}
Result32 cuMemFreeHost(void* address) {
  return std::free(address), 0;
}
Result32 cuCtxGetDevice(int* device) {
  return *device = 0, 0;
}
Result32 cuCtxPushCurrent_v2(Context) {
  return 0;
}
Result32 cuCtxPopCurrent_v2(Context*) {
  return 0;
}
Result32 cuDevicePrimaryCtxRetain(Context* context, int) {
  return *context = &state, 0;
}
Result32 cuDevicePrimaryCtxRelease_v2(int) {
  return 0;
}
Result32 cuDevicePrimaryCtxGetState(int, unsigned* flags, int* active) {
  return *flags = 0, *active = 1, 0;
}
Result32 cuMemAlloc_v2(Address* address, size_t bytes) {
  const size_t whole = (bytes + kPage - 1) / kPage * kPage;
  const int fd = ::memfd_create("cuda-stand-in", MFD_CLOEXEC);
  if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(whole)) != 0) return kOutOfMemory;
  void* mapped = ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) return kOutOfMemory;
  const std::lock_guard lock(state.mutex);
  *address = reinterpret_cast<uintptr_t>(mapped);
  state.pieces[reinterpret_cast<uintptr_t>(mapped)] = {whole, fd, ++state.last};
  return 0;
}
Result32 cuMemFree_v2(Address address) {
  const std::lock_guard lock(state.mutex);
  const auto found = state.pieces.find(static_cast<uintptr_t>(address));
  if (found == state.pieces.end()) return kInvalidValue;
  ::munmap(reinterpret_cast<void*>(found->first), found->second.bytes);
  ::close(found->second.fd);
  state.pieces.erase(found);
  return 0;
}
Result32 cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t bytes, Stream) {
  return std::memcpy(reinterpret_cast<void*>(to), from, bytes), 0;
}
Result32 cuMemcpyDtoHAsync_v2(void* to, Address from, size_t bytes, Stream) {
  return std::memcpy(to, reinterpret_cast<const void*>(from), bytes), 0;
}
Result32 cuStreamCreate(Stream* stream, unsigned) {
  return *stream = &state, 0;
}
Result32 cuStreamDestroy_v2(Stream) {
  return 0;
}
Result32 cuStreamSynchronize(Stream) {
  return 0;
}
Result32 cuThreadExchangeStreamCaptureMode(int*) {
  return 0;
}
Result32 cuPointerGetAttributes(unsigned count, int* attributes, void** values, Address address) {
  const std::lock_guard lock(state.mutex);
  auto found = state.pieces.upper_bound(static_cast<uintptr_t>(address));
  if (found == state.pieces.begin()) return kInvalidValue;
  --found;
  if (address >= found->first + found->second.bytes) return kInvalidValue;
  for (unsigned i = 0; i < count; i++) {
    if (attributes[i] == kMemoryType) *static_cast<unsigned*>(values[i]) = kTypeDevice;
    if (attributes[i] == kIsManaged) *static_cast<unsigned*>(values[i]) = 0;
    if (attributes[i] == kDeviceOrdinal) *static_cast<int*>(values[i]) = 0;
    if (attributes[i] == kBufferId) *static_cast<unsigned long long*>(values[i]) = found->second.number;
    if (attributes[i] == kRangeStart) *static_cast<Address*>(values[i]) = found->first;
    if (attributes[i] == kRangeSize) *static_cast<size_t*>(values[i]) = found->second.bytes;
  }
  return 0;
}
// Whole allocations only, which is what the registration cache asks for.
Result32 cuMemGetHandleForAddressRange(void* handle, Address address, size_t bytes, int, unsigned long long) {
  const std::lock_guard lock(state.mutex);
  const auto found = state.pieces.find(static_cast<uintptr_t>(address));
  if (found == state.pieces.end() || bytes > found->second.bytes) return kInvalidValue;
  *static_cast<int*>(handle) = ::dup(found->second.fd);
  return 0;
}

}  // extern "C"
#pragma GCC visibility pop
