// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/mem/gpu/driver.h"

#include <dlfcn.h>

#include "src/base/log.h"
#include "src/mem/gpu/scopes.h"

// The driver's library, its functions by name, and the calls that block. Copies that do not block are in
// copies.cc, memory shared between processes in driver_shared.cc.
namespace weft::mem::gpu {

namespace {

constexpr const char* kOpening = "opening the CUDA driver";
constexpr const char* kLibrary = "libcuda.so.1";

template <class Function>
bool find(void* library, const char* name, Function* out) {
  *out = reinterpret_cast<Function>(::dlsym(library, name));
  return *out != nullptr;
}

// The name of the first needed function that is missing; null: all of them are there. Optional functions stay
// null.
const char* bind(void* library, Functions* call) {
#define WEFT_NEEDED(name) \
  if (!find(library, #name, &call->name)) return #name
  WEFT_NEEDED(cuInit);
  WEFT_NEEDED(cuDriverGetVersion);
  WEFT_NEEDED(cuGetErrorName);
  WEFT_NEEDED(cuDeviceGetCount);
  WEFT_NEEDED(cuDeviceGet);
  WEFT_NEEDED(cuDeviceGetName);
  WEFT_NEEDED(cuDeviceGetPCIBusId);
  WEFT_NEEDED(cuDeviceGetAttribute);
  WEFT_NEEDED(cuCtxGetDevice);
  WEFT_NEEDED(cuCtxPushCurrent_v2);
  WEFT_NEEDED(cuCtxPopCurrent_v2);
  WEFT_NEEDED(cuDevicePrimaryCtxRetain);
  WEFT_NEEDED(cuDevicePrimaryCtxRelease_v2);
  WEFT_NEEDED(cuDevicePrimaryCtxGetState);
  WEFT_NEEDED(cuMemAlloc_v2);
  WEFT_NEEDED(cuMemFree_v2);
  WEFT_NEEDED(cuMemcpyHtoDAsync_v2);
  WEFT_NEEDED(cuMemcpyDtoHAsync_v2);
  WEFT_NEEDED(cuStreamCreate);
  WEFT_NEEDED(cuStreamDestroy_v2);
  WEFT_NEEDED(cuStreamSynchronize);
  WEFT_NEEDED(cuThreadExchangeStreamCaptureMode);
  WEFT_NEEDED(cuPointerGetAttributes);
#undef WEFT_NEEDED
#define WEFT_OPTIONAL(name) (void)find(library, #name, &call->name)
  WEFT_OPTIONAL(cuMemGetHandleForAddressRange);
  WEFT_OPTIONAL(cuEventCreate);
  WEFT_OPTIONAL(cuEventDestroy_v2);
  WEFT_OPTIONAL(cuEventRecord);
  WEFT_OPTIONAL(cuEventQuery);
  WEFT_OPTIONAL(cuMemHostAlloc);
  WEFT_OPTIONAL(cuMemFreeHost);
  WEFT_OPTIONAL(cuMemcpyDtoDAsync_v2);
  WEFT_OPTIONAL(cuMemCreate);
  WEFT_OPTIONAL(cuMemRelease);
  WEFT_OPTIONAL(cuMemRetainAllocationHandle);
  WEFT_OPTIONAL(cuMemExportToShareableHandle);
  WEFT_OPTIONAL(cuMemImportFromShareableHandle);
  WEFT_OPTIONAL(cuMemAddressReserve);
  WEFT_OPTIONAL(cuMemAddressFree);
  WEFT_OPTIONAL(cuMemMap);
  WEFT_OPTIONAL(cuMemUnmap);
  WEFT_OPTIONAL(cuMemSetAccess);
  WEFT_OPTIONAL(cuIpcGetMemHandle);
  WEFT_OPTIONAL(cuIpcOpenMemHandle_v2);
  WEFT_OPTIONAL(cuIpcCloseMemHandle);
#undef WEFT_OPTIONAL
  return nullptr;
}

struct Known {
  std::shared_ptr<const Driver> driver;
  std::string why;
};

// The drivers asked for so far, by path. The map is destroyed with the library; comms that exit handlers
// close after that hold a shared pointer of their own.
std::map<std::string, Known>& knownDrivers() {
  static std::map<std::string, Known> known;
  return known;
}

// Guards knownDrivers() and the opening of a driver.
std::mutex knownMutex;

}  // namespace

Result<std::shared_ptr<const Driver>> Driver::open(const std::string& path, bool loadedOnly) {
  const std::string name = path.empty() ? kLibrary : path;
  const int flags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE | (loadedOnly ? RTLD_NOLOAD : 0);
  void* library = ::dlopen(name.c_str(), flags);
  if (!library) {
    const char* reason = loadedOnly ? nullptr : ::dlerror();
    return Error(Code::unavailable, kOpening, reason ? reason : "this process has not loaded " + name);
  }
  Functions functions;
  if (const char* missing = bind(library, &functions))
    return Error(Code::unavailable, kOpening, name + " has no " + missing + ": it is older than CUDA 11");
  return over(functions);
}

Result<std::shared_ptr<const Driver>> Driver::over(const Functions& functions) {
  auto driver = std::make_shared<Driver>(functions);
  TRY(driver->start());
  return std::shared_ptr<const Driver>(driver);
}

std::shared_ptr<const Driver> Driver::ofProcess(const std::string& path, std::string* why) {
  const std::lock_guard lock(knownMutex);
  auto known = knownDrivers().find(path);
  if (known == knownDrivers().end()) {
    auto opened = open(path, path.empty());
    Known answer;
    if (opened) {
      answer.driver = opened.take();
    } else {
      answer.why = opened.error().message();
    }
    // A driver that is not loaded yet may be loaded later, so this answer is not kept.
    if (!answer.driver && path.empty()) {
      if (why) *why = answer.why;
      return nullptr;
    }
    known = knownDrivers().emplace(path, std::move(answer)).first;
  }
  if (why) *why = known->second.why;
  return known->second.driver;
}

Status Driver::start() {
  if (const Result32 code = call_.cuInit(0); code != kSuccess) return failed(kOpening, "cuInit", code);
  if (const Result32 code = call_.cuDriverGetVersion(&version_); code != kSuccess)
    return failed(kOpening, "asking for its version", code);
  if (const Result32 code = call_.cuDeviceGetCount(&count_); code != kSuccess)
    return failed(kOpening, "counting GPUs", code);
  if (count_ == 0) return Error(Code::unavailable, kOpening, "it shows no GPU");
  return {};
}

std::string Driver::versionText() const {
  return format("CUDA driver %d.%d", version_ / 1000, version_ % 1000 / 10);
}

Error Driver::failed(const char* operation, const std::string& object, Result32 code) const {
  const char* name = nullptr;
  if (call_.cuGetErrorName(code, &name) != kSuccess || !name) name = "an error without a name";
  return Error(code == kOutOfMemory ? Code::resources : Code::system, operation,
               format("%s: %s (%d)", object.c_str(), name, code));
}

int Driver::attribute(int attribute, int gpu) const {
  int device = 0;
  int value = 0;
  if (call_.cuDeviceGet(&device, gpu) != kSuccess) return 0;
  return call_.cuDeviceGetAttribute(&value, attribute, device) == kSuccess ? value : 0;
}

GpuFacts Driver::facts(int gpu) const {
  GpuFacts out;
  out.number = gpu;
  int device = 0;
  char text[256] = {};
  if (call_.cuDeviceGet(&device, gpu) != kSuccess) return out;
  if (call_.cuDeviceGetName(text, sizeof text - 1, device) == kSuccess) out.name = text;
  if (call_.cuDeviceGetPCIBusId(text, sizeof text - 1, device) == kSuccess) out.pciAddress = text;
  out.computeMajor = attribute(kMajor, gpu);
  out.computeMinor = attribute(kMinor, gpu);
  out.directRdma = attribute(kGpuDirectRdma, gpu) != 0;
  out.dmabuf = attribute(kDmabufSupported, gpu) != 0;
  out.coherent = attribute(kHostPageTables, gpu) != 0;
  out.ordersWrites = attribute(kWritesOrdering, gpu) >= kOrderedForOwner;
  return out;
}

// cuCtxGetDevice succeeds only where the thread has a context; neither call makes one.
std::optional<int> Driver::gpuInUse() const {
  int device = 0;
  const bool current = call_.cuCtxGetDevice(&device) == kSuccess;
  for (int gpu = 0; gpu < count_; gpu++) {
    int one = 0;
    unsigned flags = 0;
    int active = 0;
    if (call_.cuDeviceGet(&one, gpu) != kSuccess) continue;
    if (current && one == device) return gpu;
    if (!current && call_.cuDevicePrimaryCtxGetState(one, &flags, &active) == kSuccess && active) return gpu;
  }
  return std::nullopt;
}

// A single call asks for all attributes. The driver sets those that do not apply to zero and says that it
// succeeded. This question is allowed while a stream is captured, and every registration asks it.
Pointer Driver::lookUp(const void* address) const {
  Pointer out;
  unsigned type = 0;
  unsigned managed = 0;
  int gpu = -1;
  unsigned long long buffer = 0;
  Address begin = 0;
  size_t length = 0;
  int attributes[] = {kMemoryType, kIsManaged, kDeviceOrdinal, kBufferId, kRangeStart, kRangeSize};
  void* values[] = {&type, &managed, &gpu, &buffer, &begin, &length};
  constexpr unsigned kCount = sizeof attributes / sizeof attributes[0];
  if (call_.cuPointerGetAttributes(kCount, attributes, values, reinterpret_cast<uintptr_t>(address)) !=
      kSuccess)
    return out;
  if (type != kTypeHost && type != kTypeDevice) return out;
  out.kind = managed               ? Pointer::Kind::managed
             : type == kTypeDevice ? Pointer::Kind::device
                                   : Pointer::Kind::host;
  out.gpu = gpu;
  out.buffer = buffer;
  out.begin = static_cast<uintptr_t>(begin);
  out.length = length;
  return out;
}

Result<Fd> Driver::exportDmabuf(const void* address, size_t length, bool pcie) const {
  constexpr const char* kExporting = "exporting GPU memory as a dma-buf";
  if (!exportsDmabuf())
    return Error(Code::unavailable, kExporting, versionText() + " does not export any; 11.7 and later do");
  const Relaxed relaxed(call_);
  int fd = -1;
  const Result32 code = call_.cuMemGetHandleForAddressRange(&fd, reinterpret_cast<uintptr_t>(address), length,
                                                            kDmabufHandle, pcie ? kPcieMapping : 0);
  if (code == kSuccess && fd >= 0) return Fd(fd);
  return failed(kExporting, format("%zu bytes at %p%s", length, address, pcie ? ", mapped over PCIe" : ""),
                code);
}

Result<Stream> Driver::streamOf(int gpu) const {
  const std::lock_guard lock(streamsMutex_);
  if (const auto known = streams_.find(gpu); known != streams_.end()) return known->second;
  Stream stream = nullptr;
  const Result32 code = call_.cuStreamCreate(&stream, kNonBlockingStream);
  if (code != kSuccess) return failed("making a stream", format("GPU %d", gpu), code);
  streams_[gpu] = stream;
  return stream;
}

// A reset of the context destroys its streams, so a stream on which a copy failed is not used again.
template <class Copy>
Status Driver::copy(int gpu, const char* what, size_t bytes, Copy copy) const {
  const Relaxed relaxed(call_);
  const InContext inside(call_, gpu);
  if (inside.code() != kSuccess) return failed(what, format("the context of GPU %d", gpu), inside.code());
  TRY(Stream stream, streamOf(gpu));
  Result32 code = copy(stream);
  if (code == kSuccess) code = call_.cuStreamSynchronize(stream);
  if (code == kSuccess) return {};
  const std::lock_guard lock(streamsMutex_);
  streams_.erase(gpu);
  return failed(what, format("%zu bytes, GPU %d", bytes, gpu), code);
}

Status Driver::toGpu(int gpu, void* to, const void* from, size_t bytes) const {
  return copy(gpu, "copying to a GPU", bytes, [&](Stream stream) {
    return call_.cuMemcpyHtoDAsync_v2(reinterpret_cast<uintptr_t>(to), from, bytes, stream);
  });
}

Status Driver::fromGpu(int gpu, void* to, const void* from, size_t bytes) const {
  return copy(gpu, "copying from a GPU", bytes, [&](Stream stream) {
    return call_.cuMemcpyDtoHAsync_v2(to, reinterpret_cast<uintptr_t>(from), bytes, stream);
  });
}

// Copies between memory of GPUs, mapped memory of another process included: the driver tells them apart by
// their addresses.
Status Driver::within(int gpu, void* to, const void* from, size_t bytes) const {
  return copy(gpu, "copying between GPU memory", bytes, [&](Stream stream) {
    return call_.cuMemcpyDtoDAsync_v2(reinterpret_cast<uintptr_t>(to), reinterpret_cast<uintptr_t>(from),
                                      bytes, stream);
  });
}

Result<std::unique_ptr<Driver::Piece>> Driver::allocate(int gpu, size_t bytes) const {
  constexpr const char* kAllocating = "allocating GPU memory";
  const Relaxed relaxed(call_);
  const InContext inside(call_, gpu);
  if (inside.code() != kSuccess)
    return failed(kAllocating, format("the context of GPU %d", gpu), inside.code());
  Address address = 0;
  Result32 code = call_.cuMemAlloc_v2(&address, bytes);
  if (code == kSuccess && !keepContext(gpu)) {
    (void)call_.cuMemFree_v2(address);
    code = kDeinitialized;
  }
  if (code != kSuccess) return failed(kAllocating, format("%zu bytes on GPU %d", bytes, gpu), code);
  return std::make_unique<Piece>(*this, gpu, address);
}

bool Driver::keepContext(int gpu) const {
  int device = 0;
  Context context = nullptr;
  return call_.cuDeviceGet(&device, gpu) == kSuccess &&
         call_.cuDevicePrimaryCtxRetain(&context, device) == kSuccess;
}

Driver::Piece::~Piece() {
  const Functions& call = driver_.call_;
  const Relaxed relaxed(call);
  {
    const InContext inside(call, gpu_);
    (void)call.cuMemFree_v2(address_);
  }
  int device = 0;
  if (call.cuDeviceGet(&device, gpu_) == kSuccess) (void)call.cuDevicePrimaryCtxRelease_v2(device);
}

}  // namespace weft::mem::gpu
