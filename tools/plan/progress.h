// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

// Says how far a long plan is: on a terminal in one line that is overwritten, and wiped at the end; elsewhere
// in a line now and then. Silent in the first seconds. Used by one thread.
namespace weft::plan {

class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  struct Pace {
    const char* command = "weft plan";  // that speaks elsewhere than on a terminal
    Clock::duration silence = std::chrono::seconds(2);
    Clock::duration onTerminal = std::chrono::milliseconds(500);
    Clock::duration elsewhere = std::chrono::seconds(15);
  };

  // `fd` is not owned; that it is a terminal is asked here. `parts` is how often begin will be called.
  Progress(int fd, int parts, const Pace& pace);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void begin(std::string part);
  // Another step of the model was computed. The clock is asked once in many calls only.
  void computed() {
    if ((++computed_ & kSeldom) == 0) look(Clock::now());
  }

 private:
  static constexpr uint64_t kSeldom = 0xff;

  void look(Clock::time_point now);

  const int fd_;
  const bool terminal_;
  const int parts_;
  const Pace pace_;
  int part_ = 0;
  uint64_t computed_ = 0;
  std::string label_;
  bool shown_ = false;
  Clock::time_point started_ = Clock::now();
  Clock::time_point next_;
};

}  // namespace weft::plan
