// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/fault/ledger.h"

#include <cstring>

namespace weft::fault {

std::unique_ptr<Staged> stage(Device& device, const Work& work) {
  auto copy = std::make_unique<Staged>();
  if (work.length == 0) return copy;
  copy->bytes.resize(work.length);
  std::memcpy(copy->bytes.data(), work.local, work.length);
  auto memory = device.registerMemory({.address = copy->bytes.data(), .length = work.length});
  if (!memory) return nullptr;
  copy->memory = memory.take();
  return copy;
}

Ledger::Ledger(size_t expected) : entries_(expected + 1) {
  free_.reserve(expected);
  for (size_t i = expected; i > 0; i--) free_.push_back(static_cast<uint32_t>(i));
}

uint32_t Ledger::add(FaultEndpoint& lane, const Work& work) {
  if (free_.empty()) {
    free_.push_back(static_cast<uint32_t>(entries_.size()));
    entries_.emplace_back();
  }
  const uint32_t index = free_.back();
  free_.pop_back();
  Entry fresh;
  fresh.generation = entries_[index].generation + 1;
  fresh.used = true;
  fresh.work = work;
  fresh.lane = &lane;
  entries_[index] = std::move(fresh);
  unfinished_++;
  bytes_ += work.length;
  return index;
}

void Ledger::remove(uint32_t index) {
  Entry& entry = entries_[index];
  if (entry.partner) entries_[entry.partner].partner = 0;
  unfinished_--;
  bytes_ -= entry.work.length;
  entry.used = false;
  entry.copy.reset();
  free_.push_back(index);
}

uint64_t Ledger::contextOf(uint32_t index) const {
  return uint64_t{entries_[index].generation} << 32 | index;
}

uint32_t Ledger::find(uint64_t context) const {
  const auto index = static_cast<uint32_t>(context);
  if (index == 0 || index >= entries_.size()) return 0;
  const Entry& entry = entries_[index];
  return entry.used && entry.generation == context >> 32 ? index : 0;
}

}  // namespace weft::fault
