// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/system/driver/traffic.h"

#include <algorithm>
#include <cstring>

namespace weft::system {

namespace {

uint64_t word(uint64_t seed, uint64_t index) {
  uint64_t x = (seed + 1) * 0x9e3779b97f4a7c15 + index * 0xbf58476d1ce4e5b9;
  x ^= x >> 29;
  return x * 0x94d049bb133111eb;
}

}  // namespace

Memory makeMemory(Run& run, const Comm& comm, size_t bytes) {
  Memory memory;
  memory.buffer = run.need(HostBuffer::create(std::max<size_t>(bytes, 1)));
  memory.registration = run.need(Registration::create(comm, memory.buffer.span()));
  return memory;
}

void fill(std::span<std::byte> data, uint64_t seed) {
  for (uint64_t i = 0; !data.empty(); ++i) {
    const uint64_t value = word(seed, i);
    const size_t length = std::min(sizeof(value), data.size());
    std::memcpy(data.data(), &value, length);
    data = data.subspan(length);
  }
}

int64_t firstDifference(std::span<const std::byte> data, uint64_t seed) {
  for (size_t at = 0; at < data.size(); at += sizeof(uint64_t)) {
    const uint64_t value = word(seed, at / sizeof(uint64_t));
    const size_t length = std::min(sizeof(value), data.size() - at);
    if (std::memcmp(data.data() + at, &value, length) != 0) return static_cast<int64_t>(at);
  }
  return -1;
}

bool isUntouched(std::span<const std::byte> data) {
  return std::all_of(data.begin(), data.end(), [](std::byte b) { return b == kUntouched; });
}

uint64_t Random::next() {
  state_ ^= state_ << 13;
  state_ ^= state_ >> 7;
  state_ ^= state_ << 17;
  return state_;
}

void* postSend(Run& run, const Comm& comm, const SendArgs& args) {
  Deadline deadline(run, "isend of " + std::to_string(args.size) + " bytes");
  while (true) {
    void* request = reinterpret_cast<void*>(uintptr_t{0xdead});  // stale, as in NCCL's slots
    run.success(comm.net().isend(comm.raw(), args, &request), Call::isend);
    if (request != nullptr) return request;
    deadline.check();
  }
}

void* postRecv(Run& run, const Comm& comm, const RecvArgs& args, void* hint) {
  Deadline deadline(run, "irecv of " + std::to_string(args.n) + " messages");
  while (true) {
    void* request = hint;
    run.success(comm.net().irecv(comm.raw(), args, &request), Call::irecv);
    if (request != nullptr) return request;
    deadline.check();
  }
}

std::optional<Sizes> testOnce(Run& run, const Comm& comm, void* request) {
  int done = -1;
  // NCCL hands over zeroed sizes, more than any group needs.
  std::array<int, 64> sizes{};
  run.success(comm.net().test(request, &done, sizes.data()), Call::test);
  run.require(done == 0 || done == 1, "test left done at " + std::to_string(done));
  if (done == 0) return std::nullopt;
  Sizes result;
  std::copy_n(sizes.begin(), result.size(), result.begin());
  return result;
}

Sizes wait(Run& run, const Comm& comm, void* request) {
  Deadline deadline(run, "test until done");
  while (true) {
    if (const auto sizes = testOnce(run, comm, request)) return *sizes;
    deadline.check();
  }
}

ncclResult_t waitForResult(Run& run, const Comm& comm, void* request, Milliseconds limit) {
  Deadline deadline(run, "test until done or failed", limit);
  while (true) {
    int done = 0;
    const ncclResult_t result = comm.net().test(request, &done, nullptr);
    if (result != ncclSuccess || done != 0) return result;
    deadline.check();
  }
}

RecvArgs oneReceive(std::byte* data, size_t size, int tag, void* mhandle) {
  RecvArgs args;
  args.data[0] = data;
  args.sizes[0] = size;
  args.tags[0] = tag;
  args.mhandles[0] = mhandle;
  return args;
}

void sendChecked(Run& run, const Comm& comm, bool receives, size_t bytes, uint64_t seed) {
  constexpr int kTag = 3;
  const Memory memory = makeMemory(run, comm, bytes);
  const std::span<std::byte> data(memory.data(), bytes);
  if (!receives) {
    fill(data, seed);
    wait(run, comm, postSend(run, comm, {memory.data(), bytes, kTag, memory.mhandle()}));
    return;
  }
  const Sizes sizes =
      wait(run, comm, postRecv(run, comm, oneReceive(memory.data(), bytes, kTag, memory.mhandle())));
  run.expect(sizes[0] == static_cast<int>(bytes),
             "size " + std::to_string(sizes[0]) + " of " + std::to_string(bytes));
  const int64_t at = firstDifference(data, seed);
  run.expect(at < 0, std::to_string(bytes) + " bytes: wrong from byte " + std::to_string(at));
  run.count("messages");
}

}  // namespace weft::system
