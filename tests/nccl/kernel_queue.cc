// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/nccl/kernel_queue.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <thread>

namespace nccltest {

namespace {

constexpr unsigned kVersion = 23007;

// ncclDevCommRequirements
struct Requirements {
  size_t size = sizeof(Requirements);
  unsigned magic = 0xcafebeef;
  unsigned version = kVersion;
  void* resources = nullptr;
  void* teams = nullptr;
  bool multimem = false;
  int barriers = 0, lsaBarriers = 0, railBarriers = 0;
  int lsaBlocks = 0, lsaSlots = 0;
  bool forced = true;
  int contexts = kKernelContexts;
  int signals = kKernelSignals;
  int counters = kKernelCounters;
  int connections = 1;  // of each rank with each
  bool exclusive = false;
  int queueDepth = 0;
  int trafficClass = INT32_MIN;
  int worldBarriers = 0;
  bool strongSignals = true, windowSignals = true;
};
static_assert(sizeof(Requirements) == 96 && offsetof(Requirements, contexts) == 60);

// ncclWindow_vidmem, which a window's handle points to in the GPU's memory.
struct DeviceWindow {
  void* host;
  char* base;
  int lsaRank, worldRank;
  uint32_t stride4G, multicast4K, offset4K;
  std::array<void*, 4> handles;  // of the plugin, by connection
};
static_assert(offsetof(DeviceWindow, handles) == 40);

// ncclGinProxyOp_t
constexpr uint64_t kPut = 1;
constexpr uint64_t kWithInline = 2;
constexpr uint64_t kWithCounter = 4;
constexpr uint64_t kIncrement = 8;
constexpr uint64_t kAdd = 16;
constexpr uint64_t kInWindow = 32;
constexpr uint64_t kGet = 64;
constexpr uint64_t kFlush = 128;
// ncclGinProxyGfdQwordIdx_t: words of a descriptor. Each has its lowest bit set once it is there.
enum Word { kHeader, kSourceOffset, kSource, kTargetOffset, kTarget, kCompletion, kSignalValue, kOperation };

template <class Value>
Value read(const Value* at) {
  Value value{};
  expect(cuda.memcpy(&value, at, sizeof value, kDefaultCopy), "cudaMemcpy");
  return value;
}

// The plugin's handle and the place in what it registered.
struct Place {
  uint64_t handle = 0;
  uint64_t offset = 0;
};
Place placeOf(const KernelRange& range) {
  if (range.window == nullptr) return {};
  const auto window = read(static_cast<const DeviceWindow*>(range.window));
  return {reinterpret_cast<uint64_t>(window.handles[0]), uint64_t{4096} * window.offset4K + range.offset};
}

uint64_t completionOf(int counter, int signal, uint64_t value) {
  return static_cast<uint64_t>(counter) << 1 | static_cast<uint64_t>(signal) << 24 | (value & 0xffff) << 48;
}
// Of a strong signal, what the completion has no room for.
uint64_t restOf(uint64_t value) {
  return uint64_t{2} | (value >> 16 & 0xffff) << 8 | value >> 32 << 24;
}

bool becomes(const std::function<bool()>& so) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!so()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace

KernelQueues::KernelQueues(const Rank& rank) : rank_(rank) {
  const Requirements requirements;
  expect(nccl.devCommCreate(rank.comm, &requirements, &comm_), "ncclDevCommCreate");
  const auto* contexts = static_cast<const Context*>(comm_.handles[0]);
  for (int context = 0; context < kKernelContexts; ++context) {
    contexts_.push_back(read(contexts + context));
    posted_.emplace_back(static_cast<size_t>(rank.ranks));
  }
}

KernelQueues::~KernelQueues() {
  expect(nccl.devCommDestroy(rank_.comm, &comm_), "ncclDevCommDestroy");
}

// The first word tells the proxy that a descriptor is there, so it is written last.
void KernelQueues::post(int context, int peer, Descriptor descriptor) {
  const Context& to = contexts_[static_cast<size_t>(context)];
  uint32_t& posted = posted_[static_cast<size_t>(context)][static_cast<size_t>(peer)];
  const std::atomic_ref<uint32_t> consumed(to.consumed[peer]);
  if (!becomes([&] { return posted - consumed.load() < to.queueSize; }))
    std::fprintf(stderr, "rank %d: NCCL's proxy took nothing for 30 s\n", rank_.rank);
  Descriptor& slot = to.queues[static_cast<size_t>(peer) * to.queueSize + posted++ % to.queueSize];
  for (size_t i = slot.size(); i-- > 0;)
    std::atomic_ref<uint64_t>(slot[i]).store(descriptor[i] | 1, std::memory_order_release);
}

void KernelQueues::move(int context, int peer, KernelRange from, KernelRange to, uint64_t bytes, uint64_t op,
                        uint64_t completion) {
  const Place source = placeOf(from), target = placeOf(to);
  Descriptor descriptor{};
  descriptor[kHeader] = uint64_t{2} << 1 | bytes << 7;  // the descriptor's version, and the size
  descriptor[kSourceOffset] = source.offset << 1;
  descriptor[kSource] = source.handle << 1;
  descriptor[kTargetOffset] = target.offset << 1;
  descriptor[kTarget] = target.handle << 1;
  descriptor[kCompletion] = completion;
  descriptor[kSignalValue] = restOf(0);
  descriptor[kOperation] = op << 8;
  post(context, peer, descriptor);
}

void KernelQueues::put(int context, int peer, KernelRange from, KernelRange to, uint64_t bytes, int counter) {
  move(context, peer, from, to, bytes, kPut | (counter != 0 ? kWithCounter : 0), completionOf(counter, 0, 0));
}

void KernelQueues::putSignal(int context, int peer, KernelRange from, KernelRange to, uint64_t bytes,
                             int signal, int counter) {
  move(context, peer, from, to, bytes, kPut | kIncrement | (counter != 0 ? kWithCounter : 0),
       completionOf(counter, signal, 0));
}

void KernelQueues::putValue(int context, int peer, uint64_t value, KernelRange to) {
  const Place target = placeOf(to);
  Descriptor descriptor{};
  descriptor[kHeader] = uint64_t{2} << 1 | sizeof value << 7;
  descriptor[kSourceOffset] = (value & 0xffffffffffff) << 8;  // where a source has its offset and handle
  descriptor[kSource] = value >> 48 << 8;
  descriptor[kTargetOffset] = target.offset << 1;
  descriptor[kTarget] = target.handle << 1;
  descriptor[kOperation] = (kPut | kWithInline) << 8;
  post(context, peer, descriptor);
}

void KernelQueues::addSignal(int context, int peer, int signal, uint64_t value) {
  Descriptor descriptor{};
  descriptor[kHeader] = uint64_t{2} << 1;
  descriptor[kCompletion] = completionOf(0, signal, value);
  descriptor[kSignalValue] = restOf(value);
  descriptor[kOperation] = (kPut | kAdd) << 8;
  post(context, peer, descriptor);
}

void KernelQueues::addWord(int context, int peer, KernelRange word, uint64_t value) {
  const Place place = placeOf(word);
  Descriptor descriptor{};
  descriptor[kHeader] = uint64_t{2} << 1;
  descriptor[kSourceOffset] = place.offset << 1;
  descriptor[kSource] = place.handle << 1;
  descriptor[kCompletion] = completionOf(0, 0, value);
  descriptor[kSignalValue] = restOf(value);
  descriptor[kOperation] = (kInWindow | kAdd) << 8;
  post(context, peer, descriptor);
}

void KernelQueues::get(int context, int peer, KernelRange from, KernelRange to, uint64_t bytes) {
  move(context, peer, from, to, bytes, kGet, 0);
}

void KernelQueues::flush(int context, int peer) {
  Descriptor descriptor{};
  descriptor[kHeader] = uint64_t{2} << 1;
  descriptor[kOperation] = kFlush << 8;
  post(context, peer, descriptor);
}

bool KernelQueues::awaitSignal(int context, int signal, uint64_t value) const {
  const uint64_t* word = contexts_[static_cast<size_t>(context)].signals + signal;
  return becomes([&] { return read(word) >= value; });
}

bool KernelQueues::awaitCounter(int context, int counter, uint64_t value) const {
  const uint64_t* word = contexts_[static_cast<size_t>(context)].counters + counter;
  return becomes([&] { return read(word) >= value; });
}

bool KernelQueues::awaitTaken(int context, int peer) const {
  const std::atomic_ref<uint32_t> consumed(contexts_[static_cast<size_t>(context)].consumed[peer]);
  const uint32_t posted = posted_[static_cast<size_t>(context)][static_cast<size_t>(peer)];
  return becomes([&] { return consumed.load() == posted; });
}

}  // namespace nccltest
