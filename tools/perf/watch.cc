// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/watch.h"

#include <cstdint>
#include <cstring>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <fmt/format.h>

#include "tools/netdriver/log_sink.h"
#include "tools/netdriver/speaker.h"

namespace weft::perf {

namespace {

constexpr int kCutShort = 1;  // exit status
// A caller that waits with the same deadline can say for what.
constexpr std::chrono::milliseconds kGrace{500};
constexpr unsigned kSecondsForLastWords = 2;

volatile sig_atomic_t endsBy = 0;  // the signal that ends us; 0: our deadline

void unblock(int signal) {
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
}

// Last of those who handle SIGTERM: libfabric's shared memory removes its files there, and only there.
void onTerminate(int) {
  const int signal = endsBy;
  if (signal == 0) _exit(kCutShort);
  ::signal(signal, SIG_DFL);
  unblock(signal);
  raise(signal);
}

// Those that whoever started us wants us to heed: nohup ignores SIGHUP.
sigset_t watchedSignals() {
  sigset_t watched;
  sigemptyset(&watched);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction now {};
    sigaction(signal, nullptr, &now);
    if (now.sa_handler != SIG_IGN) sigaddset(&watched, signal);
  }
  return watched;
}

}  // namespace

Watch::Watch(std::chrono::seconds timeout) : timeout_(timeout), stop_(eventfd(0, EFD_CLOEXEC)) {
  const sigset_t watched = watchedSignals();
  pthread_sigmask(SIG_BLOCK, &watched, &old_);
  struct sigaction action {};
  action.sa_handler = &onTerminate;
  sigaction(SIGTERM, &action, &oldTerminate_);
  signals_.reset(signalfd(-1, &watched, SFD_CLOEXEC));
  thread_ = std::thread([this] { wait(); });
}

Watch::~Watch() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t ignored = ::write(stop_.get(), &one, sizeof(one));
  thread_.join();
  sigaction(SIGTERM, &oldTerminate_, nullptr);
  pthread_sigmask(SIG_SETMASK, &old_, nullptr);
}

void Watch::beforeEnd(LastWords lastWords) {
  const std::lock_guard lock(mutex_);
  lastWords_ = std::move(lastWords);
}

void Watch::wait() {
  const auto deadline = std::chrono::steady_clock::now() + timeout_ + kGrace;
  while (true) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) end(0);
    pollfd waits[] = {{stop_.get(), POLLIN, 0}, {signals_.get(), POLLIN, 0}};
    if (::poll(waits, 2, static_cast<int>(left.count())) <= 0) continue;
    if (waits[0].revents != 0) return;
    signalfd_siginfo info{};
    if (::read(signals_.get(), &info, sizeof(info)) == sizeof(info)) end(static_cast<int>(info.ssi_signo));
  }
}

void Watch::end(int signal) {
  const std::string why = signal == 0 ? fmt::format("not finished after {} s (--timeout)", timeout_.count())
                                      : fmt::format("ended by signal {} ({})", signal, strsignal(signal));
  if (signal == 0) fmt::print(stderr, "{}weft perf: run: {}\n", netdriver::speaker(), why);
  netdriver::LogSink::instance().setQuiet(true);  // the other ranks end, too: no news
  alarm(kSecondsForLastWords);                    // an output that takes nothing must not keep us
  const std::lock_guard lock(mutex_);
  if (lastWords_) lastWords_(why);
  endsBy = signal;
  unblock(SIGTERM);
  raise(SIGTERM);
  _exit(kCutShort);
}

}  // namespace weft::perf
