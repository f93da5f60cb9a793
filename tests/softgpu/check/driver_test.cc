// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softgpu/driver/driver.h"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "tests/support/catch.h"

using namespace softgpu;

namespace {

constexpr size_t kPage = size_t{2} << 20;

// A context for the calling thread, as whoever uses a GPU makes one first.
void useGpu() {
  static void* context = nullptr;
  if (context == nullptr) REQUIRE(cuDevicePrimaryCtxRetain(&context, 0) == kSuccess);
  REQUIRE(cuCtxSetCurrent(context) == kSuccess);
}

ino_t inodeAt(DevicePointer address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0, inode = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx %*s %*s %*s %lu", &begin, &end, &inode) == 3 && address >= begin &&
        address < end)
      return inode;
  }
  return 0;
}

void* newHandle(size_t size, int handleTypes = 1) {
  AllocationProperties properties{};
  properties.type = 1;
  properties.handleTypes = handleTypes;
  properties.location = {kLocationDevice, 0};
  void* handle = nullptr;
  REQUIRE(cuMemCreate(&handle, size, &properties, 0) == kSuccess);
  return handle;
}

DevicePointer mapHandle(void* handle, size_t size) {
  DevicePointer address = 0;
  REQUIRE(cuMemAddressReserve(&address, size, 0, 0, 0) == kSuccess);
  REQUIRE(cuMemMap(address, size, 0, handle, 0) == kSuccess);
  return address;
}

void unmap(DevicePointer address, size_t size) {
  CHECK(cuMemUnmap(address, size) == kSuccess);
  CHECK(cuMemAddressFree(address, size) == kSuccess);
}

}  // namespace

TEST_CASE("a thread has no context before it is given one, and the GPU none before somebody makes it") {
  std::thread fresh([] {
    void* context = nullptr;
    DevicePointer memory = 0;
    unsigned flags = 0;
    int device = 0, active = -1, before = 0;
    CHECK(cuCtxGetCurrent(&context) == kSuccess);
    CHECK(context == nullptr);
    CHECK(cuCtxGetDevice(&device) == kInvalidContext);
    CHECK(cuMemAlloc_v2(&memory, 8) == kInvalidContext);
    CHECK(cuStreamCreate(&context, 1) == kInvalidContext);
    CHECK(cuMemsetD8_v2(4096, 0, 1) == kInvalidContext);
    CHECK(cuDevicePrimaryCtxGetState(0, &flags, &before) == kSuccess);
    REQUIRE(cuDevicePrimaryCtxRetain(&context, 0) == kSuccess);
    CHECK(cuCtxGetDevice(&device) == kInvalidContext);  // to retain one is not to use it
    CHECK(cuDevicePrimaryCtxGetState(0, &flags, &active) == kSuccess);
    CHECK(active == 1);
    CHECK(cuCtxPushCurrent_v2(context) == kSuccess);
    CHECK(cuMemAlloc_v2(&memory, 8) == kSuccess);
    CHECK(cuMemFree_v2(memory) == kSuccess);
    CHECK(cuCtxPopCurrent_v2(&context) == kSuccess);
    CHECK(cuCtxGetDevice(&device) == kInvalidContext);
    CHECK(cuDevicePrimaryCtxRelease_v2(0) == kSuccess);
    CHECK(cuDevicePrimaryCtxGetState(0, &flags, &active) == kSuccess);
    CHECK(active == before);
  });
  fresh.join();
}

TEST_CASE("all memory is of one inode, and a descriptor of it can be mapped by no processor") {
  useGpu();
  DevicePointer one = 0, other = 0;
  REQUIRE(cuMemAlloc_v2(&one, kPage) == kSuccess);
  REQUIRE(cuMemAlloc_v2(&other, 4096) == kSuccess);
  void* handle = newHandle(kPage);
  const DevicePointer third = mapHandle(handle, kPage);
  CHECK(inodeAt(one) != 0);
  CHECK(inodeAt(one) == inodeAt(other));
  CHECK(inodeAt(one) == inodeAt(third));
  constexpr int kDmaBuf = 1;
  constexpr unsigned long long kPcie = 1;
  int fd = -1;
  CHECK(cuMemGetHandleForAddressRange(&fd, one, kPage, kDmaBuf, kPcie) == kNotSupported);
  REQUIRE(cuMemGetHandleForAddressRange(&fd, one, kPage, kDmaBuf, 0) == kSuccess);
  CHECK(mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
  CHECK(mmap(nullptr, kPage, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED);
  close(fd);
  unmap(third, kPage);
  CHECK(cuMemRelease(handle) == kSuccess);
  CHECK(cuMemFree_v2(one) == kSuccess);
  CHECK(cuMemFree_v2(other) == kSuccess);
}

TEST_CASE("an exported descriptor stands for memory that was freed meanwhile, and is imported once then") {
  useGpu();
  void* handle = newHandle(kPage);
  const DevicePointer ours = mapHandle(handle, kPage);
  CHECK(cuMemsetD8_v2(ours, 7, 100) == kSuccess);
  int fd = -1;
  REQUIRE(cuMemExportToShareableHandle(&fd, handle, 1, 0) == kSuccess);
  unmap(ours, kPage);
  CHECK(cuMemRelease(handle) == kSuccess);
  void* const descriptor = reinterpret_cast<void*>(static_cast<intptr_t>(fd));
  REQUIRE(cuMemImportFromShareableHandle(&handle, descriptor, 1) == kSuccess);
  const DevicePointer again = mapHandle(handle, kPage);
  char byte = 0;
  CHECK(cuMemcpy(reinterpret_cast<uintptr_t>(&byte), again + 99, 1) == kSuccess);
  CHECK(byte == 7);
  unmap(again, kPage);
  CHECK(cuMemRelease(handle) == kSuccess);
  CHECK(cuMemImportFromShareableHandle(&handle, descriptor, 1) == kInvalidValue);
  close(fd);
}

TEST_CASE("fabric handles are offered, and permitted to nobody; memory without handles is not exported") {
  useGpu();
  int offered = 0;
  CHECK(cuDeviceGetAttribute(&offered, 128, 0) == kSuccess);
  CHECK(offered == 1);
  AllocationProperties properties{};
  properties.type = 1;
  properties.handleTypes = 8;
  properties.location = {kLocationDevice, 0};
  void* handle = nullptr;
  CHECK(cuMemCreate(&handle, kPage, &properties, 0) == kNotPermitted);
  handle = newHandle(kPage, 0);
  int fd = -1;
  CHECK(cuMemExportToShareableHandle(&fd, handle, 1, 0) == kInvalidValue);
  CHECK(cuMemRelease(handle) == kSuccess);
}

TEST_CASE("device memory is copied, set and found by any address in it") {
  useGpu();
  DevicePointer memory = 0;
  REQUIRE(cuMemAlloc_v2(&memory, 5000) == kSuccess);
  std::vector<char> there(5000, 7), back(5000);
  CHECK(cuMemcpy(memory, reinterpret_cast<uintptr_t>(there.data()), 5000) == kSuccess);
  CHECK(cuMemcpy(reinterpret_cast<uintptr_t>(back.data()), memory, 5000) == kSuccess);
  CHECK(there == back);
  unsigned type = 0;
  CHECK(cuPointerGetAttribute(&type, 2, memory + 4999) == kSuccess);
  CHECK(type == 2);
  CHECK(cuPointerGetAttribute(&type, 2, reinterpret_cast<uintptr_t>(&type)) == kInvalidValue);
  CHECK(cuMemFree_v2(memory + 1) == kInvalidValue);
  CHECK(cuMemFree_v2(memory) == kSuccess);
  CHECK(cuMemFree_v2(memory) == kInvalidValue);
}

TEST_CASE("a copy from pageable memory is read before the call returns") {
  useGpu();
  DevicePointer memory = 0;
  void* stream = nullptr;
  REQUIRE(cuMemAlloc_v2(&memory, 4) == kSuccess);
  REQUIRE(cuStreamCreate(&stream, 1) == kSuccess);
  CHECK(cuLaunchHostFunc(
            stream, [](void*) { usleep(20000); }, nullptr) == kSuccess);
  int value = 1;
  CHECK(cuMemcpyAsync(memory, reinterpret_cast<uintptr_t>(&value), 4, stream) == kSuccess);
  value = 2;
  CHECK(cuStreamSynchronize(stream) == kSuccess);
  CHECK(cuMemcpy(reinterpret_cast<uintptr_t>(&value), memory, 4) == kSuccess);
  CHECK(value == 1);
  cuStreamDestroy_v2(stream);
  cuMemFree_v2(memory);
}

TEST_CASE("virtual memory: two mappings of one handle are the same bytes") {
  useGpu();
  AllocationProperties properties{};
  properties.type = 1;
  properties.handleTypes = 1;
  properties.location = {kLocationDevice, 0};
  void* handle = nullptr;
  REQUIRE(cuMemCreate(&handle, kPage, &properties, 0) == kSuccess);
  DevicePointer first = 0, second = 0;
  REQUIRE(cuMemAddressReserve(&first, kPage, 0, 0, 0) == kSuccess);
  REQUIRE(cuMemAddressReserve(&second, kPage, 0, 0, 0) == kSuccess);
  REQUIRE(cuMemMap(first, kPage, 0, handle, 0) == kSuccess);
  REQUIRE(cuMemMap(second, kPage, 0, handle, 0) == kSuccess);
  CHECK(cuMemRelease(handle) == kSuccess);
  CHECK(cuMemsetD8_v2(first, 42, 100) == kSuccess);
  char byte = 0;
  CHECK(cuMemcpy(reinterpret_cast<uintptr_t>(&byte), second + 99, 1) == kSuccess);
  CHECK(byte == 42);
  CHECK(cuMemAddressFree(first, kPage) == kInvalidValue);
  CHECK(cuMemUnmap(first, kPage) == kSuccess);
  CHECK(cuMemUnmap(second, kPage) == kSuccess);
  CHECK(cuMemAddressFree(first, kPage) == kSuccess);
  CHECK(cuMemAddressFree(second, kPage) == kSuccess);
}

TEST_CASE("a stream waits for what an event meant when it was told to") {
  useGpu();
  void *one = nullptr, *other = nullptr, *event = nullptr;
  REQUIRE(cuStreamCreate(&one, 1) == kSuccess);
  REQUIRE(cuStreamCreate(&other, 1) == kSuccess);
  REQUIRE(cuEventCreate(&event, 0) == kSuccess);
  CHECK(cuEventQuery(event) == kSuccess);
  static bool done;
  done = false;
  cuLaunchHostFunc(
      one,
      [](void*) {
        usleep(20000);
        done = true;
      },
      nullptr);
  CHECK(cuEventRecord(event, one) == kSuccess);
  CHECK(cuStreamWaitEvent(other, event, 0) == kSuccess);
  CHECK(cuStreamSynchronize(other) == kSuccess);
  CHECK(done);
  cuEventDestroy_v2(event);
  cuStreamDestroy_v2(one);
  cuStreamDestroy_v2(other);
}

TEST_CASE("what is captured happens at each launch, and only then") {
  useGpu();
  DevicePointer memory = 0;
  void *stream = nullptr, *graph = nullptr, *run = nullptr;
  REQUIRE(cuMemAlloc_v2(&memory, 8) == kSuccess);
  REQUIRE(cuStreamCreate(&stream, 1) == kSuccess);
  static int calls;
  calls = 0;
  REQUIRE(cuStreamBeginCapture_v2(stream, 0) == kSuccess);
  CHECK(cuLaunchHostFunc(
            stream, [](void*) { ++calls; }, nullptr) == kSuccess);
  REQUIRE(cuStreamEndCapture(stream, &graph) == kSuccess);
  CHECK(calls == 0);
  REQUIRE(cuGraphInstantiateWithFlags(&run, graph, 0) == kSuccess);
  for (int turn = 1; turn <= 3; ++turn) {
    CHECK(cuGraphLaunch(run, stream) == kSuccess);
    CHECK(cuStreamSynchronize(stream) == kSuccess);
    CHECK(calls == turn);
  }
  cuGraphExecDestroy(run);
  cuGraphDestroy(graph);
  cuStreamDestroy_v2(stream);
  cuMemFree_v2(memory);
}

TEST_CASE(
    "a call that could disturb a capture fails it, unless the thread or the capture allows such calls") {
  useGpu();
  constexpr int kGlobal = 0, kThreadLocal = 1, kRelaxed = 2;
  struct Row {
    int capture, thread;
    bool sameThread, allowed;
  };
  const auto row = GENERATE(Row{kGlobal, kGlobal, false, false}, Row{kGlobal, kGlobal, true, false},
                            Row{kGlobal, kThreadLocal, false, true}, Row{kGlobal, kRelaxed, false, true},
                            Row{kGlobal, kRelaxed, true, true}, Row{kThreadLocal, kGlobal, false, true},
                            Row{kThreadLocal, kGlobal, true, false}, Row{kRelaxed, kGlobal, true, true});
  void *stream = nullptr, *other = nullptr, *graph = nullptr, *event = nullptr;
  REQUIRE(cuStreamCreate(&stream, 1) == kSuccess);
  REQUIRE(cuStreamCreate(&other, 1) == kSuccess);
  REQUIRE(cuEventCreate(&event, 0) == kSuccess);
  REQUIRE(cuStreamBeginCapture_v2(stream, row.capture) == kSuccess);
  Result asked = kUnknown;
  const auto ask = [&] {
    useGpu();
    int mode = row.thread;
    cuThreadExchangeStreamCaptureMode(&mode);
    asked = cuEventQuery(event);
    cuThreadExchangeStreamCaptureMode(&mode);
  };
  if (row.sameThread) {
    ask();
  } else {
    std::thread(ask).join();
  }
  CHECK(asked == (row.allowed ? kSuccess : kCaptureUnsupported));
  CHECK(cuStreamEndCapture(stream, &graph) == (row.allowed ? kSuccess : kCaptureInvalidated));
  CHECK((graph != nullptr) == row.allowed);
  CHECK(cuStreamSynchronize(other) == kSuccess);  // it is over
  if (graph != nullptr) cuGraphDestroy(graph);
  cuEventDestroy_v2(event);
  cuStreamDestroy_v2(stream);
  cuStreamDestroy_v2(other);
}

TEST_CASE("a stream writes words and waits for words, in order") {
  useGpu();
  constexpr int kWait64 = 4, kWrite64 = 5;
  constexpr unsigned kAtLeast = 0;
  void *host = nullptr, *stream = nullptr;
  DevicePointer memory = 0;
  REQUIRE(cuMemHostAlloc(&host, 16, 0) == kSuccess);
  REQUIRE(cuMemAlloc_v2(&memory, 8) == kSuccess);
  REQUIRE(cuStreamCreate(&stream, 1) == kSuccess);
  auto* const words = static_cast<volatile uint64_t*>(host);
  words[0] = 0;
  words[1] = 0;
  const auto first = reinterpret_cast<DevicePointer>(host);
  const MemoryOperation all[] = {{kWrite64, first, 7, 0, 0, {}},
                                 {kWait64, first + 8, 5, kAtLeast, 0, {}},
                                 {kWrite64, memory, uint64_t{1} << 40, 0, 0, {}}};
  REQUIRE(cuStreamBatchMemOp_v2(stream, 3, all, 0) == kSuccess);
  while (words[0] != 7) std::this_thread::yield();
  CHECK(cuStreamQuery(stream) == kNotReady);
  words[1] = 6;
  CHECK(cuStreamSynchronize(stream) == kSuccess);
  uint64_t written = 0;
  CHECK(cuMemcpy(reinterpret_cast<DevicePointer>(&written), memory, 8) == kSuccess);
  CHECK(written == uint64_t{1} << 40);
  int unknown = 0;
  CHECK(cuStreamWaitValue32_v2(stream, reinterpret_cast<DevicePointer>(&unknown), 0, 0) == kInvalidValue);
  CHECK(cuStreamWaitValue64_v2(stream, first + 4, 0, 0) == kInvalidValue);
  cuStreamDestroy_v2(stream);
  cuMemFree_v2(memory);
  cuMemFreeHost(host);
}

TEST_CASE("a stream that waits for a word goes on when its memory is freed") {
  useGpu();
  DevicePointer memory = 0;
  void* stream = nullptr;
  REQUIRE(cuMemAlloc_v2(&memory, 8) == kSuccess);
  REQUIRE(cuMemsetD8_v2(memory, 0, 8) == kSuccess);
  REQUIRE(cuStreamCreate(&stream, 1) == kSuccess);
  REQUIRE(cuStreamWaitValue64_v2(stream, memory, 1, 1) == kSuccess);
  CHECK(cuStreamQuery(stream) == kNotReady);
  cuMemFree_v2(memory);
  CHECK(cuStreamSynchronize(stream) == kSuccess);
  cuStreamDestroy_v2(stream);
}
