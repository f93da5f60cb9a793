// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "src/base/bytes.h"
#include "src/base/fd.h"

// A man in the middle: every connection that this process makes to a port of loopback, and every one to a
// door where he was told to stand, goes through a thread of his, who changes, cuts, repeats, swaps or holds
// back bytes at a place that a seed says. Each test has one at a time.
namespace weft::hostile {

enum class Trick : uint8_t { none, flip, cut, repeat, swap, insert, hold };
constexpr int kTricks = 7;

// What he does, and where: to the bytes of one direction, counted from its first.
struct Plan {
  Trick trick = Trick::none;
  bool toAcceptor = true;
  size_t at = 0;
  bool always = false;  // to all connections, and not to the first one alone
};
Plan planOf(uint64_t seed, size_t places);
const char* nameOf(Trick trick);

class Middle {
 public:
  Middle();
  ~Middle();
  Middle(const Middle&) = delete;
  Middle& operator=(const Middle&) = delete;

  // From the next connection on.
  void follow(const Plan& plan);
  // What went to the acceptor on the first connection since the plan, as its sender said it.
  Bytes heard(bool toAcceptor) const;
  size_t connections() const { return connections_; }
  bool played() const { return played_; }  // the trick was reached

  // He stands at this listener, which does not block, for those whom `onward` connects to. It runs on his
  // thread.
  using Onward = std::function<Fd()>;
  void stand(Fd listener, Onward onward);

  // For the wrapped connect(2): his port for a port of loopback. 0: he takes none.
  uint16_t portFor(uint16_t port);
  static Middle* present();
  static bool isHis();  // the calling thread is his own

 private:
  struct Pipe;
  struct Door {
    Fd listener;
    Onward onward;
  };
  void run();
  void accept(const Door& door);
  bool relay(Pipe& pipe);
  void pass(Pipe& pipe, bool toAcceptor, Bytes bytes);

  mutable std::mutex mutex_;
  std::vector<Door> doors_;
  std::map<uint16_t, uint16_t> ports_;  // his port, by the one that was wanted
  std::vector<std::unique_ptr<Pipe>> pipes_;
  Plan plan_;
  size_t connections_ = 0;  // since the plan
  Bytes heard_[2];
  std::atomic<bool> played_{false};
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

// A connection to a port of loopback that nobody stands in the middle of; `from`: the last byte of ours.
Fd dialPast(uint16_t port, uint8_t from = 1);

}  // namespace weft::hostile
