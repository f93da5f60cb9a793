// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "src/core/lane_set.h"
#include "src/core/messages.h"
#include "src/mem/region.h"

// Which memory the two ends of a peering have announced to each other: ours, that the peer writes to, and the
// peer's, by the numbers that its CTS use. Owned by its Peering; used only by who has entered
// the engine.
namespace weft::core {

// One of our regions as far as this peer knows it.
struct Announcement {
  uint32_t id = 0;  // what CTS call it; never reused on a peering
  mem::RegionRef region;
  uint32_t users = 0;         // memory handles that rely on it
  bool acknowledged = false;  // the peer can be sent CTS that name it
};

class MemoryBook {
 public:
  using Imported = std::array<RemoteMemory, LaneSet::kMaxLanes>;  // one region of the peer, per lane

  // What a book needs of the peering that it is of.
  class Talk {
   public:
    virtual void announceToPeer(const mem::Region& region, uint32_t id) = 0;
    virtual void withdrawFromPeer(uint32_t id) = 0;
    virtual Result<Imported> importFromPeer(const MemoryNotice& notice) = 0;

   protected:
    ~Talk() = default;
  };

  explicit MemoryBook(Talk& talk) : talk_(talk) {}

  // Ours. The announcement lives until its last user withdraws it, which makes the peer forget it.
  Announcement* announce(const mem::RegionRef& region);
  void acknowledged(uint32_t id);
  void withdraw(Announcement* announcement);

  // The peer's.
  Status import(const MemoryNotice& notice);
  void forget(uint32_t id);
  const Imported* imported(uint32_t id) {  // null: never announced, or withdrawn
    return lastImported_ && id == lastImportedId_ ? lastImported_ : findImported(id);
  }

 private:
  [[gnu::noinline]] const Imported* findImported(uint32_t id);

  Talk& talk_;
  uint32_t nextId_ = 1;
  std::unordered_map<uint32_t, std::unique_ptr<Announcement>> announced_;
  std::unordered_map<const mem::Region*, Announcement*> announcedOf_;
  std::unordered_map<uint32_t, Imported> imported_;
  uint32_t lastImportedId_ = 0;  // what was looked up last: mostly the same again
  const Imported* lastImported_ = nullptr;
};

}  // namespace weft::core
