// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/reserve.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <mutex>

// The reserve, and the scopes in which it may be used.
namespace weft {

namespace {

// Closing everything that a process has open takes a small part of it. Pages that are never touched cost
// nothing.
constexpr size_t kReserveBytes = size_t{1} << 20;
constexpr size_t kAlign = alignof(std::max_align_t);

thread_local int depth = 0;  // the number of MustNotFail scopes on this thread

// Pieces are handed out from front to back; all of it is free again once every piece was given back. It needs
// no construction, so it serves before main() and after it.
class Reserve {
 public:
  void* take(size_t bytes) {
    const size_t rounded = (bytes + kAlign - 1) / kAlign * kAlign;
    const std::lock_guard lock(mutex_);
    if (rounded < bytes || rounded > kReserveBytes - used_) return nullptr;
    void* piece = memory_.data() + used_;
    used_ += rounded;
    pieces_++;
    return piece;
  }

  // False: the piece is not from here.
  bool give(const void* piece) {
    const auto address = reinterpret_cast<uintptr_t>(piece);
    const auto first = reinterpret_cast<uintptr_t>(memory_.data());
    if (address < first || address >= first + kReserveBytes) return false;
    const std::lock_guard lock(mutex_);
    if (--pieces_ == 0) used_ = 0;
    return true;
  }

 private:
  alignas(kAlign) std::array<std::byte, kReserveBytes> memory_{};
  std::mutex mutex_;
  size_t used_ = 0;
  size_t pieces_ = 0;
};

constinit Reserve reserve;

}  // namespace

void* allocateOrReserve(size_t bytes) {
  // Not zero: each piece has an address of its own.
  const size_t wanted = bytes == 0 ? 1 : bytes;
  if (void* memory = std::malloc(wanted)) return memory;
  // Destructors that run because of a failure must not fail again.
  return depth > 0 || std::uncaught_exceptions() > 0 ? reserve.take(wanted) : nullptr;
}

void giveBack(void* memory) noexcept {
  if (!reserve.give(memory)) std::free(memory);
}

MustNotFail::MustNotFail() {
  depth++;
}

MustNotFail::~MustNotFail() {
  depth--;
}

}  // namespace weft
