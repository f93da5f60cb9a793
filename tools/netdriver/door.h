// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>

#include "src/base/config.h"
#include "src/base/net/guest.h"
#include "tools/netdriver/greeting.h"

// Where ranks come in. Guests introduce themselves side by side, each within its time, so one that connects
// and stays silent holds up nobody; where many come the oldest one that has proven nothing goes. Only who
// knows the token of the run gets further. Used by one thread.
namespace weft::netdriver {

class Door {
 public:
  Door(Fd listener, const TokenKey& key);  // the listener does not block from now on

  // A rank that has proven itself, its socket blocking again; it waits for an answer.
  struct Caller {
    Fd socket;
    Hello hello;
  };
  // The next caller, or nothing when none came within the time.
  std::optional<Caller> next(Milliseconds time);

  // How many did not know the token, and where the last of them was.
  size_t strangers() const { return strangers_; }
  const std::string& lastStranger() const { return lastStranger_; }

 private:
  struct Inside {
    Guest guest;
    Opening opening;
  };
  void letIn();
  bool isOver(Inside* one, std::optional<Caller>* caller);
  void sendAway(Inside* one);

  Fd listener_;
  const TokenKey key_;
  std::deque<Inside> guests_;  // oldest first
  size_t strangers_ = 0;
  std::string lastStranger_;
};

}  // namespace weft::netdriver
