// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/world/played_inboxes.h"

#include <sys/stat.h>

namespace weft::world {

namespace {

PlayedInboxes* current = nullptr;

ino_t numberOf(int fd) {
  struct stat file {};
  return ::fstat(fd, &file) == 0 ? file.st_ino : 0;
}

}  // namespace

PlayedInboxes* PlayedInboxes::running() {
  return current;
}

PlayedInboxes::PlayedInboxes(const Scheduler& scheduler) : scheduler_(scheduler) {
  current = this;
}

PlayedInboxes::~PlayedInboxes() {
  current = nullptr;
}

void PlayedInboxes::made(int fd) {
  if (const Task* task = scheduler_.current()) owners_[numberOf(fd)] = task->rank;
}

bool PlayedInboxes::ownerLives(int fd) const {
  const auto known = owners_.find(numberOf(fd));
  return known == owners_.end() || !dead_.contains(known->second);
}

}  // namespace weft::world
