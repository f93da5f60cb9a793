// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <memory>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include "src/base/fd.h"
#include "src/mem/gpu/driver.h"
#include "tests/support/gpu_in_use.h"
#include "tests/system/local/local_ends.h"

// An end of a lane with GPU memory, on any CUDA driver. Used by one thread.
namespace weft::test {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kBytes = 8 * kMiB;

// To look for it is no call of CUDA's.
inline void skipWithoutDriver() {
  if (::dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) != nullptr) return;
  std::printf("no CUDA driver: %s\n", ::dlerror());
  std::fflush(stdout);
  std::exit(77);
}

[[noreturn]] inline void fail(const std::string& why) {
  std::fprintf(stderr, "%d: %s\n", ::getpid(), why.c_str());
  std::abort();
}

template <class T>
T need(Result<T> result) {
  if (!result) fail(result.error().message());
  return result.take();
}

inline void need(const Status& status) {
  if (!status) fail(status.error().message());
}

// What the two say to each other before they have a lane.
struct Introduction {
  std::array<std::byte, 256> address;
  std::array<std::byte, 64> blob;
  size_t addressBytes, blobBytes;
};

// How its memory was allocated: made for sharing, as NCCL's own buffers are, or as cudaMalloc does it. The
// third one offers no GPU memory.
enum class Made : char { forSharing = 1, byCudaMalloc, not_ };

struct GpuEnd {
  // A copy that is held is not given up, unless a test wants that.
  explicit GpuEnd(Made made, Milliseconds patience = std::chrono::minutes(10))
      : driver(need(mem::gpu::Driver::open({}, false))) {
    const bool withGpu = made != Made::not_;
    if (made == Made::byCudaMalloc)
      plain = need(driver->allocate(0, kBytes));
    else
      shared = need(driver->allocateShareable(0, kBytes));
    Config config = localConfig();
    config.libcuda = "libcuda.so.1";
    config.closeTimeout = patience;
    transport = local::makeTransport(config);
    DeviceInfo info = need(transport->discover()).front();
    info.cudaMemory = withGpu;
    device = need(transport->open(info));
    queue = need(device->openQueue({}));
    lane = need(queue->openEndpoint());
    if (!withGpu) return;
    MemoryDesc desc;
    desc.address = data();
    desc.length = kBytes;
    desc.kind = MemoryKind::cuda;
    desc.gpu = 0;
    memory = need(device->registerMemory(desc));
  }
  ~GpuEnd() {
    lane.reset();
    memory.reset();
  }
  std::byte* data() const { return shared ? shared->data() : static_cast<std::byte*>(plain->data()); }
  void introduce(const Fd& link) {
    Introduction out{};
    out.addressBytes = lane->address().size();
    std::copy_n(lane->address().begin(), out.addressBytes, out.address.begin());
    if (memory) out.blobBytes = memory->blob().size();
    if (memory) std::copy_n(memory->blob().begin(), out.blobBytes, out.blob.begin());
    if (::send(link.get(), &out, sizeof out, MSG_NOSIGNAL) != sizeof out) fail("the link is gone");
    Introduction in{};
    if (::recv(link.get(), &in, sizeof in, MSG_WAITALL) != sizeof in) fail("the link is gone");
    need(lane->connect(std::span(in.address).first(in.addressBytes)));
    if (in.blobBytes > 0) remote = need(lane->import(std::span(in.blob).first(in.blobBytes)));
  }
  void poll() {
    Completion out[16];
    const size_t count = queue->poll(out);
    for (const Completion& one : std::span(out).first(count)) {
      if (!one.ok) words.push_back(queue->explain(one));
      seen.push_back(one);
    }
  }
  bool pollUntil(CompletionKind kind, size_t count) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10) * patience();
    while (std::chrono::steady_clock::now() < end) {
      poll();
      if (of(kind) >= count) return true;
    }
    return false;
  }
  size_t of(CompletionKind kind) const {
    return static_cast<size_t>(
        std::count_if(seen.begin(), seen.end(), [&](const Completion& one) { return one.kind == kind; }));
  }
  void write(size_t at, size_t length) {
    Work work;
    work.op = Opcode::writeNotify;
    work.local = data() + at;
    work.length = length;
    work.memory = memory.get();
    work.remote = remote;
    work.remoteOffset = at;
    while (lane->post({&work, 1}) == 0) poll();
  }
  void fill(uint64_t seed) const {
    std::vector<uint64_t> pattern(kBytes / 8);
    for (size_t i = 0; i < pattern.size(); i++) pattern[i] = (i + 1) * (seed * 2 + 1) * 0x9e3779b97f4a7c15u;
    need(driver->toGpu(0, data(), pattern.data(), kBytes));
  }
  std::vector<std::byte> content() const {
    std::vector<std::byte> out(kBytes);
    need(driver->fromGpu(0, out.data(), data(), kBytes));
    return out;
  }

  const GpuInUse context;
  std::shared_ptr<const mem::gpu::Driver> driver;
  std::unique_ptr<mem::gpu::Driver::Mapped> shared;  // one of the two
  std::unique_ptr<mem::gpu::Driver::Piece> plain;
  std::unique_ptr<Transport> transport;
  std::shared_ptr<Device> device;
  std::unique_ptr<Queue> queue;
  std::unique_ptr<Memory> memory;
  std::unique_ptr<Endpoint> lane;
  RemoteMemory remote;
  std::vector<Completion> seen;
  std::vector<std::string> words;
};

}  // namespace weft::test
