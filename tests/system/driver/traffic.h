// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <optional>
#include <span>

#include "tests/system/driver/run.h"

// Messages of a case: data that can be recognised byte by byte, posting until it is taken, waiting until it
// is done. One thread a comm.
namespace weft::system {

using netdriver::Comm;
using netdriver::HostBuffer;
using netdriver::RecvArgs;
using netdriver::Registration;
using netdriver::SendArgs;

// Memory registered with one comm; given back in the order registration, memory.
struct Memory {
  HostBuffer buffer;
  Registration registration;
  std::byte* data() const { return buffer.data(); }
  void* mhandle() const { return registration.mhandle(); }
};
Memory makeMemory(Run& run, const Comm& comm, size_t bytes);

// The bytes of a message depend on its seed and their place in it.
void fill(std::span<std::byte> data, uint64_t seed);
// The first byte that is different, or -1.
int64_t firstDifference(std::span<const std::byte> data, uint64_t seed);

constexpr std::byte kUntouched{0xc3};
bool isUntouched(std::span<const std::byte> data);

// Small fast numbers, the same on both sides for the same seed.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 2654435761 + 1) {}
  uint64_t next();
  uint64_t below(uint64_t bound) { return next() % bound; }

 private:
  uint64_t state_;
};

using Sizes = std::array<int, netdriver::kMaxGroup>;

// Posts, again and again while the plugin says "not now". The result is never null.
void* postSend(Run& run, const Comm& comm, const SendArgs& args);
void* postRecv(Run& run, const Comm& comm, const RecvArgs& args, void* hint = nullptr);

// One test: the sizes when done.
std::optional<Sizes> testOnce(Run& run, const Comm& comm, void* request);
// Tests until done.
Sizes wait(Run& run, const Comm& comm, void* request);

// What a call of test ended with, repeated while it reports success without being done.
ncclResult_t waitForResult(Run& run, const Comm& comm, void* request, Milliseconds limit);

RecvArgs oneReceive(std::byte* data, size_t size, int tag, void* mhandle);

// One message from side 1 to side 0 over a fresh pair of buffers, verified: the comm works.
void sendChecked(Run& run, const Comm& comm, bool receives, size_t bytes, uint64_t seed);

}  // namespace weft::system
