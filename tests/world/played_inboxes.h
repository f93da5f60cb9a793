// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <map>
#include <set>
#include <sys/types.h>

#include "tools/world/scheduler.h"

// Whose the shared memory of providers/local is. All of it is real, and one process has it: what the kernel
// does when a process ends, which is to drop its locks, is played for the ranks (wrapped_calls.cc). Used by
// one thread.
namespace weft::world {

class PlayedInboxes {
 public:
  explicit PlayedInboxes(const Scheduler& scheduler);
  ~PlayedInboxes();
  PlayedInboxes(const PlayedInboxes&) = delete;
  PlayedInboxes& operator=(const PlayedInboxes&) = delete;
  static PlayedInboxes* running();

  void kill(int rank) { dead_.insert(rank); }
  void made(int fd);              // by the task that runs
  bool ownerLives(int fd) const;  // of any descriptor of that memory

 private:
  const Scheduler& scheduler_;
  std::map<ino_t, int> owners_;
  std::set<int> dead_;
};

}  // namespace weft::world
