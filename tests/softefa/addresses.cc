// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softefa/addresses.h"

#include <algorithm>

namespace softefa {

std::optional<uint16_t> Addresses::add(const void* domain, const Gid& gid) {
  const Place place{domain, gid};
  if (const auto known = numbers_.find(place); known != numbers_.end()) {
    ++entries_[known->second].handles;
    return known->second;
  }
  auto unused =
      std::find_if(entries_.begin(), entries_.end(), [](const Entry& entry) { return entry.handles == 0; });
  if (unused == entries_.end()) {
    if (entries_.size() >= most_) return std::nullopt;
    unused = entries_.insert(entries_.end(), Entry{});
  }
  *unused = {place, 1};
  const auto number = static_cast<uint16_t>(unused - entries_.begin());
  numbers_[place] = number;
  return number;
}

void Addresses::remove(uint16_t number) {
  Entry& entry = entries_[number];
  if (--entry.handles == 0) numbers_.erase(entry.place);
}

std::optional<uint16_t> Addresses::find(const void* domain, const Gid& gid) const {
  const auto known = numbers_.find({domain, gid});
  if (known == numbers_.end()) return std::nullopt;
  return known->second;
}

std::optional<Gid> Addresses::gidOf(uint16_t number) const {
  if (number >= entries_.size() || entries_[number].handles == 0) return std::nullopt;
  return entries_[number].place.second;
}

}  // namespace softefa
