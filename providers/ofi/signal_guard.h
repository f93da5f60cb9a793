// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <csignal>

// Remembers the handler of every signal and restores it. Opening libfabric opens the libraries of its
// providers, and one of them (libinfinipath, in Debian 12's) takes SIGINT, SIGTERM and SIGSEGV from Python or
// any other owner. A value on the stack of the thread that opens.
namespace weft::ofi {

class SignalGuard {
 public:
  SignalGuard() {
    for (int number = 1; number < kSignals; number++) known_[at(number)] = read(number, &before_[at(number)]);
  }
  ~SignalGuard() {
    for (int number = 1; number < kSignals; number++) restore(number);
  }
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

 private:
  static constexpr int kSignals = 32;  // the classic signals; no library claims a real-time signal by number

  static size_t at(int number) { return static_cast<size_t>(number); }
  static bool read(int number, struct sigaction* out) { return ::sigaction(number, nullptr, out) == 0; }

  void restore(int number) const {
    struct sigaction now {};
    const struct sigaction& before = before_[at(number)];
    if (!known_[at(number)] || !read(number, &now) || now.sa_handler == before.sa_handler) return;
    ::sigaction(number, &before, nullptr);
  }

  std::array<struct sigaction, kSignals> before_{};
  std::array<bool, kSignals> known_{};
};

}  // namespace weft::ofi
