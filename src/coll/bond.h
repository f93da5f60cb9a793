// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <vector>

#include "src/coll/pipe.h"

// The tie between this rank and the others of its group, beside the data: alarms and goodbyes over the
// connections (pipes) that the group has. look() is the one place that reads the messages of the others. A
// backend owns the bond and the pipes. Used by the thread of the group's data calls.
namespace weft::coll {

class Bond {
 public:
  // Ordered by weight. A state never goes back, and enter() alone changes it.
  enum class State : uint8_t {
    whole,    // all other ends are there, as far as can be seen
    parting,  // an end said goodbye: it has its results, and sends nothing more
    broken,   // the connection to an end failed without a word from it
    alarmed,  // an end said why the group is broken
  };

  // `rank` is the rank at the other end of the pipe; -1: a daemon, which is no rank. The pipe outlives the
  // bond.
  void add(int rank, Pipe& pipe) { ends_.push_back({rank, &pipe}); }

  // Sends the messages that wait to leave, looks at every other end, and returns the state.
  State look();
  State state() const { return state_; }
  // About the end that the state comes from:
  int rank() const { return rank_; }                   // -1: a daemon, or state whole
  const Alarm& alarm() const { return alarm_; }        // in state alarmed
  const std::string& fault() const { return fault_; }  // in state broken: the error of the connection

  // Tells every other end why the group is broken, or goodbye (an empty reason). A message leaves at once
  // where that is possible, else with repeat() and with later looks.
  void say(const Alarm& alarm);
  size_t ends() const { return ends_.size(); }
  void repeat();
  // Waits until all others have left or failed and have our goodbye, `most` at most. Until then they may send
  // into receives of ours, and one that lacks the goodbye would take our end for a failure.
  void awaitGoodbyes(const Clock& clock, Milliseconds most);

 private:
  struct End {
    int rank;
    Pipe* pipe;
  };
  // Takes a heavier state and keeps its source; a lighter state is ignored.
  void enter(State next, const End& from);

  std::vector<End> ends_;  // by the order of add()
  State state_ = State::whole;
  int rank_ = -1;  // the end that state_ comes from
  Alarm alarm_;
  std::string fault_;
};

}  // namespace weft::coll
