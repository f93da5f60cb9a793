// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/memory_book.h"

namespace weft::core {

Announcement* MemoryBook::announce(const mem::RegionRef& region) {
  if (const auto known = announcedOf_.find(region.get()); known != announcedOf_.end()) {
    known->second->users++;
    return known->second;
  }
  const uint32_t id = nextId_++;
  auto fresh = std::make_unique<Announcement>(Announcement{id, region, 1, false});
  Announcement* announcement = fresh.get();
  // Where memory runs out on the way nothing may stay that was not announced: a later region may lie at the
  // same address, and would wait for its acknowledgement for ever.
  struct Undo {
    ~Undo() {
      if (announced) return;
      of.announcedOf_.erase(region);
      of.announced_.erase(id);
    }
    MemoryBook& of;
    const mem::Region* region;
    uint32_t id;
    bool announced;
  } undo{*this, region.get(), id, false};
  announced_.emplace(id, std::move(fresh));
  announcedOf_.emplace(region.get(), announcement);
  talk_.announceToPeer(*region, id);
  undo.announced = true;
  return announcement;
}

void MemoryBook::acknowledged(uint32_t id) {
  if (auto known = announced_.find(id); known != announced_.end()) known->second->acknowledged = true;
}

void MemoryBook::withdraw(Announcement* announcement) {
  if (--announcement->users > 0) return;
  const uint32_t id = announcement->id;
  talk_.withdrawFromPeer(id);
  announcedOf_.erase(announcement->region.get());
  announced_.erase(id);
}

Status MemoryBook::import(const MemoryNotice& notice) {
  TRY(imported_[notice.id], talk_.importFromPeer(notice));
  lastImported_ = nullptr;
  return {};
}

void MemoryBook::forget(uint32_t id) {
  imported_.erase(id);
  lastImported_ = nullptr;
}

const MemoryBook::Imported* MemoryBook::findImported(uint32_t id) {
  const auto found = imported_.find(id);
  if (found == imported_.end()) return nullptr;
  lastImportedId_ = id;
  return lastImported_ = &found->second;
}

}  // namespace weft::core
