// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/replay/board.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

namespace weft::replay {

namespace {

constexpr size_t kHandlesARound = 8;
constexpr std::chrono::microseconds kBusyPause{200};
constexpr std::chrono::microseconds kIdlePause{5000};

}  // namespace

struct Board::Note {
  uint32_t handles = 0;
  uint32_t finished = 0;
  uint32_t failed = 0;
  HandleKey keys[kHandlesARound]{};
  netdriver::Handle values[kHandlesARound]{};
  char message[512]{};
};

void Board::publish(HandleKey key, const netdriver::Handle& handle) {
  const std::lock_guard lock(mutex_);
  handles_[key] = handle;
  unsent_.push_back(key);
}

std::optional<netdriver::Handle> Board::find(HandleKey key) const {
  const std::lock_guard lock(mutex_);
  const auto found = handles_.find(key);
  return found != handles_.end() ? std::optional(found->second) : std::nullopt;
}

void Board::fail(const std::string& what, bool mine) {
  const std::lock_guard lock(mutex_);
  if (failed_.exchange(true)) return;
  failure_ = what;
  untold_ = mine;
}

std::string Board::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

Board::Note Board::nextNote() {
  Note note;
  const std::lock_guard lock(mutex_);
  for (; note.handles < kHandlesARound && !unsent_.empty(); ++note.handles) {
    note.keys[note.handles] = unsent_.front();
    note.values[note.handles] = handles_[unsent_.front()];
    unsent_.pop_front();
  }
  note.finished = static_cast<uint32_t>(finished_.load());
  note.failed = untold_ ? 1 : 0;
  std::memcpy(note.message, failure_.data(), std::min(failure_.size(), sizeof(note.message) - 1));
  return note;
}

void Board::take(const Note& note, bool own) {
  if (own) return;
  const std::lock_guard lock(mutex_);
  for (uint32_t i = 0; i < std::min<size_t>(note.handles, kHandlesARound); ++i)
    handles_[note.keys[i]] = note.values[i];
}

Status Board::exchange(netdriver::Bootstrap& bootstrap, int ranks) {
  const auto wanted = static_cast<uint32_t>(ranks);
  while (true) {
    const Note mine = nextNote();
    TRY(const auto all, bootstrap.gatherValues(mine));
    bool done = true;
    bool busy = false;
    for (size_t process = 0; process < all.size(); ++process) {
      const Note& note = all[process];
      take(note, static_cast<int>(process) == bootstrap.rank());
      if (note.failed != 0) {
        fail(note.message, false);
        return {};
      }
      done = done && note.finished == wanted;
      busy = busy || note.handles > 0;
    }
    if (done) break;
    std::this_thread::sleep_for(busy ? kBusyPause : kIdlePause);
  }
  setAllDone();
  return {};
}

}  // namespace weft::replay
