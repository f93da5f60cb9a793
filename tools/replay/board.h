// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "tools/netdriver/bootstrap.h"
#include "tools/netdriver/net.h"

// Where ranks of a replay find each other's handles, and hear that one failed. Any thread.
namespace weft::replay {

struct HandleKey {
  int rank = 0;
  uint64_t listener = 0;
  auto operator<=>(const HandleKey&) const = default;
};

class Board {
 public:
  void publish(HandleKey key, const netdriver::Handle& handle);
  std::optional<netdriver::Handle> find(HandleKey key) const;

  // The first failure of any rank ends all. `mine`: it has to be told to other processes.
  void fail(const std::string& what, bool mine);
  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  std::string failure() const;

  // A rank of this process has done all of its part.
  void finishOne() { ++finished_; }

  // Takes part in the exchange with the other processes until all their ranks are done or one failed. Called
  // where there are others; one thread. `ranks`: how many are in this process.
  Status exchange(netdriver::Bootstrap& bootstrap, int ranks);
  // True where all ranks of all processes are done, which a rank awaits that leaves connections open.
  bool allDone() const { return allDone_.load(); }
  void setAllDone() { allDone_.store(true); }
  int finished() const { return finished_.load(); }

 private:
  struct Note;  // what a process says in one round
  Note nextNote();
  void take(const Note& note, bool own);

  mutable std::mutex mutex_;
  std::map<HandleKey, netdriver::Handle> handles_;
  std::deque<HandleKey> unsent_;
  std::string failure_;
  bool untold_ = false;
  std::atomic<bool> failed_{false};
  std::atomic<int> finished_{0};
  std::atomic<bool> allDone_{false};
};

}  // namespace weft::replay
