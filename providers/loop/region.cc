// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/loop/region.h"

#include <thread>
#include <utility>

namespace weft::loop {

namespace {

constexpr uint64_t kAlive = uint64_t{1} << 31;
constexpr uint64_t kPins = kAlive - 1;

constexpr uint64_t generationOf(uint64_t value) {
  return value >> 32;
}

}  // namespace

RegionTable::Use::Use(Use&& other) noexcept
    : state_(std::exchange(other.state_, nullptr)),
      base_(other.base_),
      length_(other.length_),
      owners_(other.owners_) {}

RegionTable::Use::~Use() {
  if (state_) state_->fetch_sub(1, std::memory_order_release);  // our copy is over: remove may return
}

std::byte* RegionTable::Use::at(uint64_t offset, size_t length) const {
  if (!state_ || offset > length_ || length > length_ - offset) return nullptr;
  return base_ + offset;
}

std::byte* RegionTable::Use::at(const void* address, size_t length) const {
  const auto first = reinterpret_cast<uintptr_t>(address);
  return first < owners_ ? nullptr : at(uint64_t{first - owners_}, length);
}

bool RegionTable::grow() {
  const size_t chunk = owned_.size();
  if (chunk == kChunks) return false;
  owned_.push_back(std::make_unique<Slot[]>(kChunk));
  for (size_t i = kChunk; i > 0; i--) free_.push_back(static_cast<uint32_t>(chunk * kChunk + i - 1));
  chunks_[chunk].store(owned_.back().get(), std::memory_order_release);  // slots are constructed
  return true;
}

RegionTable::Slot* RegionTable::find(uint64_t key) const {
  const size_t index = key & 0xffffffffu;
  if (index >= kChunk * kChunks) return nullptr;
  Slot* chunk = chunks_[index / kChunk].load(std::memory_order_acquire);
  return chunk ? &chunk[index % kChunk] : nullptr;
}

uint64_t RegionTable::add(void* base, size_t length, uint64_t domain, const void* owners) {
  const std::lock_guard lock(mutex_);
  if (free_.empty() && !grow()) return 0;
  const uint32_t index = free_.back();
  free_.pop_back();
  Slot& slot = *find(index);
  slot.base = static_cast<std::byte*>(base);
  slot.length = length;
  slot.domain = domain;
  slot.owners = reinterpret_cast<uintptr_t>(owners);
  const uint64_t generation = generationOf(slot.state.load(std::memory_order_relaxed)) + 1;
  slot.state.store(generation << 32 | kAlive, std::memory_order_release);  // publishes the four above
  return generation << 32 | index;
}

void RegionTable::remove(uint64_t key) {
  Slot* slot = find(key);
  if (!slot || generationOf(slot->state.load(std::memory_order_relaxed)) != generationOf(key)) return;
  slot->state.fetch_and(~kAlive, std::memory_order_acq_rel);
  // acquire: whatever the pin's holder copied happened before the memory is given back
  while (slot->state.load(std::memory_order_acquire) & kPins) std::this_thread::yield();
  const std::lock_guard lock(mutex_);
  free_.push_back(static_cast<uint32_t>(key));
}

RegionTable::Use RegionTable::use(uint64_t key, uint64_t domain) {
  Slot* slot = find(key);
  if (!slot) return {};
  uint64_t seen = slot->state.load(std::memory_order_relaxed);
  do {
    if (!(seen & kAlive) || generationOf(seen) != generationOf(key)) return {};
    // acquire: pairs with add's release, so base and length are this generation's
  } while (!slot->state.compare_exchange_weak(seen, seen + 1, std::memory_order_acquire));
  Use pinned(&slot->state, slot->base, slot->length, slot->owners);
  if (slot->domain != domain) return {};
  return pinned;
}

}  // namespace weft::loop
