// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/replay/memory.h"

#include <algorithm>

namespace weft::replay {

namespace {

constexpr size_t kPage = 4096;

}  // namespace

Result<CommMemory::Area*> CommMemory::areaOf(Registrar& registrar, uint64_t number, size_t copy,
                                             size_t least) {
  const auto known = areas_.find({number, copy});
  if (known != areas_.end() && known->second.buffer.size() >= least + known->second.shift)
    return &known->second;
  const auto facts = facts_->find(number);
  Area area;
  const size_t bytes = facts != facts_->end() ? facts->second.bytes : least;
  area.shift = facts != facts_->end() ? facts->second.address % kPage : 0;
  TRY(area.buffer, netdriver::HostBuffer::create(std::max<size_t>(1, bytes) + area.shift));
  if (facts != facts_->end() && bytes > 0) {
    TRY(void* mhandle, registrar.add(area.buffer.span().subspan(area.shift, bytes)));
    area.registration = {mhandle, Deregister{&registrar}};
  }
  if (known != areas_.end()) areas_.erase(known);
  return &areas_.emplace(std::pair(number, copy), std::move(area)).first->second;
}

Status CommMemory::registerOne(Registrar& registrar, uint64_t number) {
  TRY(areaOf(registrar, number, 0, 0));
  return {};
}

void CommMemory::release(uint64_t number) {
  areas_.erase(areas_.lower_bound({number, 0}), areas_.upper_bound({number, SIZE_MAX}));
}

void CommMemory::releaseAll() {
  areas_.clear();
  used_.clear();
}

bool CommMemory::inUse(const std::byte* data, size_t size) const {
  const auto after = used_.lower_bound(data + size);
  return after != used_.begin() && std::prev(after)->first + std::prev(after)->second > data;
}

Result<Place> CommMemory::take(Registrar& registrar, const trace::Part& part) {
  for (size_t copy = 0;; ++copy) {
    TRY(Area * area, areaOf(registrar, part.memory, copy, part.memory != 0 ? 0 : part.size));
    const size_t offset = part.memory != 0 ? part.offset : 0;
    std::byte* const data = area->buffer.data() + area->shift + offset;
    if (part.size > 0 && inUse(data, part.size)) continue;
    if (part.size > 0) used_[data] = part.size;
    return Place{data, part.size, area->registration.get()};
  }
}

void CommMemory::giveBack(const Place& place) {
  if (place.size > 0) used_.erase(place.data);
}

}  // namespace weft::replay
