// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/stats/keyboard.h"

#include <cerrno>
#include <csignal>
#include <ctime>
#include <initializer_list>
#include <poll.h>
#include <unistd.h>

namespace weft::counted {

namespace {

volatile std::sig_atomic_t asked = 0;  // to end

void onSignal(int) {
  asked = 1;
}

}  // namespace

// A process in the background must not touch the terminal: it would be stopped.
Keyboard::Keyboard() {
  there_ = ::isatty(STDIN_FILENO) == 1 && ::tcgetpgrp(STDIN_FILENO) == ::getpgrp() &&
           ::tcgetattr(STDIN_FILENO, &before_) == 0;
  struct sigaction end {};
  end.sa_handler = onSignal;
  sigset_t ends;
  ::sigemptyset(&ends);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    ::sigaction(number, &end, nullptr);
    ::sigaddset(&ends, number);
  }
  ::pthread_sigmask(SIG_BLOCK, &ends, &open_);
  if (!there_) return;
  termios keys = before_;
  keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  there_ = ::tcsetattr(STDIN_FILENO, TCSANOW, &keys) == 0;
}

Keyboard::~Keyboard() {
  if (there_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  ::pthread_sigmask(SIG_SETMASK, &open_, nullptr);
}

char Keyboard::next(double seconds) {
  pollfd input{there_ ? STDIN_FILENO : -1, POLLIN, 0};
  const auto whole = static_cast<time_t>(seconds);
  const timespec time{whole, static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
  const int ready = ::ppoll(&input, 1, &time, &open_);
  if (asked) return kEnd;
  char key = kNone;
  if (ready <= 0 || ::read(STDIN_FILENO, &key, 1) == 1) return key;
  there_ = false;  // the terminal has gone
  return kEnd;
}

}  // namespace weft::counted
