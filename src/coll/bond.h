// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <vector>

#include "src/coll/pipe.h"

// The tie between this rank and the others of its group, beside the data: alarms and goodbyes, over the
// connections (pipes) that the group has. look() is the one place where what the others said is read. Owned
// by a backend, which has the pipes; the thread of the group's data calls.
namespace weft::coll {

class Bond {
 public:
  // In the order of weight. A state never goes back, and enter() is all that changes it.
  enum class State : uint8_t {
    whole,    // all others are there, as far as can be seen
    parting,  // one said goodbye: it has its results, and nothing more comes from it
    broken,   // the connection to one failed without a word from it
    alarmed,  // one said why the group is broken
  };

  // `rank` is the one at the other end of the pipe; -1: a daemon, which is no rank.
  void add(int rank, Pipe& pipe) { ends_.push_back({rank, &pipe}); }

  // Sends what waits to leave, looks at every other end, and says what is known now.
  State look();
  State state() const { return state_; }
  // Of the end that the state comes from:
  int rank() const { return rank_; }
  const Alarm& alarm() const { return alarm_; }        // in state alarmed
  const std::string& fault() const { return fault_; }  // in state broken: of the connection

  // To every other end: why the group is broken, or goodbye (an empty reason). Leaves at once where that can
  // be, else with repeat() and the looks that follow.
  void say(const Alarm& alarm);
  void repeat();
  // Waits until all others have left or failed as well: until then they may send into receives of ours.
  void awaitGoodbyes(const Clock& clock, Milliseconds most);

 private:
  struct End {
    int rank;
    Pipe* pipe;
  };
  void enter(State next, const End& from);

  std::vector<End> ends_;
  State state_ = State::whole;
  int rank_ = -1;
  Alarm alarm_;
  std::string fault_;
};

}  // namespace weft::coll
