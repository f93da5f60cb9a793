// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/early_messages.h"

#include <algorithm>

#include "src/core/window.h"

namespace weft::core {

Result<uint32_t> EarlyMessages::begin(mem::Heap& heap, RecvCommImpl* comm, uint32_t tag, uint32_t k,
                                      uint32_t size) {
  makeRoom();
  Early early;
  TRY(early.block, heap.take(earlyBytes(size)));
  early.comm = comm;
  early.tag = tag;
  early.k = k;
  early.size = size;
  early.state = State::coming;
  if (free_.empty()) {
    messages_.push_back(std::move(early));
    return static_cast<uint32_t>(messages_.size() - 1);
  }
  const uint32_t index = free_.back();
  free_.pop_back();
  messages_[index] = std::move(early);
  return index;
}

// So that neither taking one more nor giving any back needs memory.
void EarlyMessages::makeRoom() {
  constexpr size_t kFirst = 64;
  if (!free_.empty() || messages_.size() < messages_.capacity()) return;
  const size_t room = std::max(kFirst, 2 * messages_.size());
  free_.reserve(room);
  messages_.reserve(room);
}

EarlyMessages::Early* EarlyMessages::landed(uint32_t index) {
  Early& early = messages_[index];
  if (early.state == State::coming) {
    early.state = State::here;
    return &early;
  }
  if (early.state == State::orphan) drop(index);
  return nullptr;
}

void EarlyMessages::release(uint32_t index) {
  Early& early = messages_[index];
  if (early.state == State::coming) {
    early.state = State::orphan;
    early.comm = nullptr;
    early.slot = nullptr;
  } else if (early.state == State::here) {
    drop(index);
  }
}

void EarlyMessages::drop(uint32_t index) {
  messages_[index] = Early{};
  free_.push_back(index);
}

}  // namespace weft::core
