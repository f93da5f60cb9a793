// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softgpu/driver/driver.h"

#include <cstdint>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "tests/support/catch.h"

using namespace softgpu;

namespace {

constexpr size_t kPage = size_t{2} << 20;

}  // namespace

TEST_CASE("device memory is copied, set and found by any address in it") {
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
  DevicePointer memory = 0;
  void *stream = nullptr, *graph = nullptr, *run = nullptr;
  REQUIRE(cuMemAlloc_v2(&memory, 8) == kSuccess);
  REQUIRE(cuStreamCreate(&stream, 1) == kSuccess);
  static int calls;
  calls = 0;
  REQUIRE(cuStreamBeginCapture_v2(stream, 0) == kSuccess);
  CHECK(cuLaunchHostFunc(
            stream, [](void*) { ++calls; }, nullptr) == kSuccess);
  CHECK(cuStreamSynchronize(stream) == kCaptureUnsupported);
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
