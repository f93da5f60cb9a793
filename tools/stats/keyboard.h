// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <csignal>
#include <termios.h>

// Keys that are pressed at the terminal, without the need for Return. The terminal is as it was before when
// the object goes, and Ctrl-C and SIGTERM are a key like others meanwhile, so that nothing is left behind.
// Where the standard input is no terminal of this process's own there are no other keys. Used by one thread,
// once a process.
namespace weft::counted {

class Keyboard {
 public:
  static constexpr char kNone = 0;
  static constexpr char kEnd = 3;  // Ctrl-C, or SIGTERM

  Keyboard();
  ~Keyboard();
  Keyboard(const Keyboard&) = delete;
  Keyboard& operator=(const Keyboard&) = delete;

  // The next key within that time; kNone: none came.
  char next(double seconds);

 private:
  bool there_ = false;
  termios before_{};
  sigset_t open_{};  // signals that end it come only while it waits for a key
};

}  // namespace weft::counted
