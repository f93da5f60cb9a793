// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "tests/softefa/identity.h"

namespace softefa {

// Address handle numbers of one opened NIC: one a GID and protection domain, counted by its handles.
// Guarded by the device's lock.
class Addresses {
 public:
  explicit Addresses(unsigned most) : most_(most) {}

  // The number for `gid`; nothing when the NIC has no more.
  std::optional<uint16_t> add(const void* domain, const Gid& gid);
  // Drops one handle of the number; the last one ends it.
  void remove(uint16_t number);

  // The number a packet's sender has here, if it has one.
  std::optional<uint16_t> find(const void* domain, const Gid& gid) const;
  // Where a number leads, if it is still in use.
  std::optional<Gid> gidOf(uint16_t number) const;

 private:
  using Place = std::pair<const void*, Gid>;
  struct Entry {
    Place place;
    unsigned handles = 0;
  };

  unsigned most_;
  std::map<Place, uint16_t> numbers_;
  std::vector<Entry> entries_;
};

}  // namespace softefa
