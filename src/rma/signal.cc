// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/rma/signal.h"

#include <atomic>
#include <cstring>
#include <mutex>

#include "src/base/device_order.h"
#include "src/base/log.h"

// Additions and copies in the memory of this rank.
namespace weft::rma {

namespace {

// Between teams of this process that add to the same words of a GPU. Never destroyed before a caller is done.
constinit std::mutex gpuWords;

}  // namespace

Status OwnMemory::settle(Window& window) const {
  if (window.host()) return {};
  if (driver_) window.memory.gpu = driver_->lookUp(window.memory.address).gpu;
  if (window.memory.gpu >= 0) return {};
  return Error(Code::unavailable, "registering a window",
               format("the CUDA driver does not know %p as memory of a GPU", window.memory.address));
}

Status OwnMemory::add(Window& window, uint64_t offset, uint64_t addend) const {
  std::byte* at = window.at(offset);
  if (reinterpret_cast<uintptr_t>(at) % sizeof(uint64_t) != 0)
    return Error(Code::invalidArgument, "adding a signal",
                 format("%p, at %zu of window %u, is no address of a 64-bit word", static_cast<void*>(at),
                        static_cast<size_t>(offset), window.number));
  if (!window.host()) return addOnGpu(window, offset, addend);
  auto* word = reinterpret_cast<uint64_t*>(at);
  beforeDeviceReads();  // a GPU may watch the word
  std::atomic_ref<uint64_t>(*word).fetch_add(addend, std::memory_order_release);
  return {};
}

// Words that nobody else writes are read once; from then on their value is known here.
Status OwnMemory::addOnGpu(Window& window, uint64_t offset, uint64_t addend) const {
  std::lock_guard alone(gpuWords);
  void* word = window.at(offset);
  const auto [shadow, unread] = window.words.try_emplace(offset, 0);
  uint64_t value = shadow->second;
  if (unread || !window.neverReset) {
    TRY(driver_->fromGpu(window.memory.gpu, &value, word, sizeof value));
  }
  value += addend;
  TRY(driver_->toGpu(window.memory.gpu, word, &value, sizeof value));
  shadow->second = value;
  return {};
}

Status OwnMemory::read(const Window& window, const std::byte* at, void* to, size_t bytes) const {
  if (!window.host()) return driver_->fromGpu(window.memory.gpu, to, at, bytes);
  std::memcpy(to, at, bytes);
  return {};
}

Status OwnMemory::write(const Window& window, std::byte* at, const void* from, size_t bytes) const {
  if (!window.host()) return driver_->toGpu(window.memory.gpu, at, from, bytes);
  std::memcpy(at, from, bytes);
  return {};
}

Status OwnMemory::copy(const Window& to, uint64_t toOffset, const Window& from, uint64_t fromOffset,
                       uint64_t bytes) const {
  std::byte* target = to.at(toOffset);
  const std::byte* source = from.at(fromOffset);
  const auto size = static_cast<size_t>(bytes);
  if (target == source) return {};  // a flush: whatever was received is visible before its request is done
  if (to.host() && from.host()) {
    std::memmove(target, source, size);
    return {};
  }
  if (to.host()) return driver_->fromGpu(from.memory.gpu, target, source, size);
  if (from.host()) return driver_->toGpu(to.memory.gpu, target, source, size);
  return driver_->within(to.memory.gpu, target, source, size);
}

}  // namespace weft::rma
