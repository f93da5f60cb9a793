// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/common/key_table.h"

#include <thread>
#include <utility>

#include "src/base/random.h"

// Adding, pinning and removing ranges. The orders of the atomics are said at each of them.
namespace weft {

namespace {

constexpr uint64_t kAlive = uint64_t{1} << 31;
constexpr uint64_t kPins = kAlive - 1;

}  // namespace

KeyTable::Use::Use(Use&& other) noexcept
    : state_(std::exchange(other.state_, nullptr)),
      base_(other.base_),
      length_(other.length_),
      gpu_(other.gpu_) {}

KeyTable::Use& KeyTable::Use::operator=(Use&& other) noexcept {
  if (this == &other) return *this;
  release();
  state_ = std::exchange(other.state_, nullptr);
  base_ = other.base_;
  length_ = other.length_;
  gpu_ = other.gpu_;
  return *this;
}

void KeyTable::Use::release() {
  // Release: our copy is over before remove() returns.
  if (state_) std::exchange(state_, nullptr)->fetch_sub(1, std::memory_order_release);
}

bool KeyTable::grow() {
  const size_t chunk = owned_.size();
  if (chunk == kChunks) return false;
  free_.reserve(free_.size() + kChunk);
  owned_.push_back(std::make_unique<Slot[]>(kChunk));
  for (size_t i = kChunk; i > 0; i--) free_.push_back(static_cast<uint32_t>(chunk * kChunk + i - 1));
  chunks_[chunk].store(owned_.back().get(), std::memory_order_release);  // release: the slots are constructed
  return true;
}

KeyTable::Slot* KeyTable::find(uint64_t key) const {
  const size_t index = key & ((uint64_t{1} << kIndexBits) - 1);
  Slot* chunk = chunks_[index / kChunk].load(std::memory_order_acquire);
  return chunk ? &chunk[index % kChunk] : nullptr;
}

uint64_t KeyTable::add(void* base, size_t length, int gpu, PeerAccess peers) {
  const uint64_t random = (randomU64() | uint64_t{1} << 63) >> kIndexBits << kIndexBits;  // never 0
  const std::lock_guard lock(mutex_);
  if (free_.empty() && !grow()) return 0;
  const uint64_t key = random | free_.back();
  free_.pop_back();
  Slot& slot = *find(key);
  slot.base = static_cast<std::byte*>(base);
  slot.length = length;
  slot.key = key;
  slot.gpu = gpu;
  slot.peers = peers;
  // Release: publishes the five members above. The same upper half twice in a row at one place does no harm,
  // as use() compares the whole key.
  slot.state.store(key >> 32 << 32 | kAlive, std::memory_order_release);
  return key;
}

void KeyTable::remove(uint64_t key) {
  Slot* slot = find(key);
  if (!slot) return;
  slot->state.fetch_and(~kAlive, std::memory_order_acq_rel);
  // Acquire: everything that a pin's holder copied happened before the memory is given back.
  while (slot->state.load(std::memory_order_acquire) & kPins) std::this_thread::yield();
  const std::lock_guard lock(mutex_);
  free_.push_back(static_cast<uint32_t>(key & ((uint64_t{1} << kIndexBits) - 1)));
}

KeyTable::Use KeyTable::use(uint64_t key, PeerAccess wanted) {
  Slot* slot = find(key);
  if (!slot) return {};
  uint64_t seen = slot->state.load(std::memory_order_relaxed);
  do {
    if (!(seen & kAlive) || seen >> 32 != key >> 32) return {};
    // Acquire: pairs with the release of add(), so the slot's members belong to this registration.
  } while (!slot->state.compare_exchange_weak(seen, seen + 1, std::memory_order_acquire));
  Use pinned(&slot->state, slot->base, slot->length, slot->gpu);
  if (slot->key != key || slot->peers < wanted) return {};
  return pinned;
}

}  // namespace weft
