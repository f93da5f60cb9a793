// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/netdriver/launcher.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

namespace weft::netdriver {

namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kRun = "run";
constexpr int kPauseMs = 20;
// After a first failure: long enough to see who else died, and so who died of what, before the rest is
// stopped.
constexpr Milliseconds kGather{200};
constexpr Milliseconds kTerminate{1000};

volatile std::sig_atomic_t interrupted = 0;

void onSignal(int number) {
  interrupted = number;
}

// True where the other end of our standard output, a pipe, is closed.
bool outputHasNoReader() {
  pollfd output{STDOUT_FILENO, 0, 0};
  return ::poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
}

// Puts the handlers back when the run is over.
class SignalScope {
 public:
  SignalScope() {
    interrupted = 0;
    struct sigaction action {};
    action.sa_handler = &onSignal;
    sigaction(SIGINT, &action, &oldInterrupt_);
    sigaction(SIGTERM, &action, &oldTerminate_);
    sigaction(SIGHUP, nullptr, &oldHangUp_);
    if (oldHangUp_.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);  // nohup wants us to go on
  }
  ~SignalScope() {
    sigaction(SIGINT, &oldInterrupt_, nullptr);
    sigaction(SIGTERM, &oldTerminate_, nullptr);
    sigaction(SIGHUP, &oldHangUp_, nullptr);
  }
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;

 private:
  struct sigaction oldInterrupt_ {};
  struct sigaction oldTerminate_ {};
  struct sigaction oldHangUp_ {};
};

}  // namespace

Status Launcher::run() {
  const SignalScope signals;
  TRY(startAll());
  Status result = watch();
  stopAll();
  showHeldLines();
  return result;
}

Status Launcher::startAll() {
  TRY(LocalListener listener, listenLocally());
  listener_ = std::move(listener);
  // By the environment, which other users of the host cannot read, as they can a command line.
  ::setenv(kTokenVariable, freshToken().c_str(), 1);
  for (int r = 0; r < options_.processes; ++r) {
    ChildProcess::Command command;
    command.arguments = {ownPath(), options_.command};
    for (const std::string& argument :
         {std::string("--rank"), std::to_string(r), std::string("--size"), std::to_string(options_.processes),
          std::string("--rendezvous"), listener_.host + ":" + std::to_string(listener_.port)})
      command.arguments.push_back(argument);
    if (r == 0) {
      command.arguments.insert(command.arguments.end(), {"--listen-fd", std::to_string(listener_.fd.get())});
      command.arguments.insert(command.arguments.end(), options_.rootArguments.begin(),
                               options_.rootArguments.end());
      command.keepFds = options_.rootFds;
      command.keepFds.push_back(listener_.fd.get());
    }
    // The user's own last: behind a "--" of his, ours would be no options any more.
    command.arguments.insert(command.arguments.end(), options_.arguments.begin(), options_.arguments.end());
    command.captureErrors = true;
    TRY(ChildProcess process, ChildProcess::spawn(command));
    ranks_.emplace_back().process = std::move(process);
  }
  listener_.fd.reset();  // rank 0 has it; with our copy open, nobody would notice its death
  return {};
}

Status Launcher::watch() {
  const bool bounded = options_.timeout.count() > 0;
  const auto deadline = Clock::now() + options_.timeout;
  auto gatherEnd = Clock::time_point::max();
  while (true) {
    readErrors(kPauseMs);
    const bool allEnded = reap();
    interruptedBy_ = interrupted;
    if (interruptedBy_ != 0) return Error(Code::system, kRun, "interrupted");
    if (!failed_.empty() && gatherEnd == Clock::time_point::max()) gatherEnd = Clock::now() + kGather;
    if (!failed_.empty() && (allEnded || Clock::now() >= gatherEnd))
      return Error(Code::remote, kRun, describeFailure());
    if (allEnded) return {};
    if (bounded && Clock::now() >= deadline)
      return Error(Code::timeout, kRun,
                   "not finished after " + std::to_string(options_.timeout.count() / 1000) +
                       " s (--timeout)" + stoppedRanks());
  }
}

// True where every rank has ended.
bool Launcher::reap() {
  bool allEnded = true;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    Rank& rank = ranks_[r];
    const auto status = rank.process.poll();
    allEnded = allEnded && status;
    if (!status || rank.reaped) continue;
    rank.reaped = true;
    drain(r);
    const bool verdict =
        r == 0 && options_.verdict != 0 && WIFEXITED(*status) && WEXITSTATUS(*status) == options_.verdict;
    hasVerdict_ = hasVerdict_ || verdict;
    if (*status != 0 && !verdict) failed_.push_back(r);
    if (r == 0 && WIFSIGNALED(*status) && WTERMSIG(*status) == SIGPIPE) outputClosed_ = outputHasNoReader();
  }
  return allEnded;
}

void Launcher::readErrors(int pauseMs) {
  std::vector<pollfd> waits;
  for (const Rank& rank : ranks_) waits.push_back({rank.reaped ? -1 : rank.process.errorFd(), POLLIN, 0});
  const int ready = ::poll(waits.data(), waits.size(), pauseMs);
  bool onlyHangUps = ready > 0;
  for (size_t r = 0; r < waits.size(); ++r) {
    if ((waits[r].revents & POLLIN) == 0) continue;
    onlyHangUps = false;
    drain(r);
  }
  // A rank that closed its stderr keeps poll from waiting.
  if (onlyHangUps) ::usleep(1000);
}

void Launcher::drain(size_t rank) {
  char buffer[4096];
  Rank& from = ranks_[rank];
  for (ssize_t got = 0; (got = ::read(from.process.errorFd(), buffer, sizeof(buffer))) > 0;) {
    from.partialLine.append(buffer, static_cast<size_t>(got));
    for (size_t end = 0; (end = from.partialLine.find('\n')) != std::string::npos;) {
      showLine(rank, from.partialLine.substr(0, end));
      from.partialLine.erase(0, end + 1);
    }
  }
  if (from.reaped && !from.partialLine.empty()) showLine(rank, std::exchange(from.partialLine, {}));
}

void Launcher::showLine(size_t rank, const std::string& line) {
  if (!line.empty()) ranks_[rank].lastLine = line;
  const std::string text = options_.beforeLine + "[rank " + std::to_string(rank) + "] " + line + "\n";
  if (outputHasNoReader())
    held_ += text;
  else
    std::fputs(text.c_str(), stderr);
}

// Where rank 0 ended because nobody reads what it writes, the others only say that it is gone.
void Launcher::showHeldLines() {
  if (!outputClosed_) std::fputs(held_.c_str(), stderr);
}

void Launcher::stopAll() {
  for (const Rank& rank : ranks_) rank.process.signal(SIGTERM);
  const auto deadline = Clock::now() + kTerminate;
  while (!reap() && Clock::now() < deadline) readErrors(kPauseMs);
  ranks_.clear();  // kills and reaps who is still there
}

// A rank that died of a signal comes first: others then fail because of it, some of them before we see its
// end.
std::string Launcher::describeFailure() {
  const auto bySignal = std::find_if(failed_.begin(), failed_.end(),
                                     [&](size_t r) { return WIFSIGNALED(*ranks_[r].process.poll()); });
  const size_t first = bySignal != failed_.end() ? *bySignal : failed_.front();
  Rank& rank = ranks_[first];
  std::string text = "rank " + std::to_string(first) + " (pid " + std::to_string(rank.process.pid()) +
                     ") ended with " + describeStatus(*rank.process.poll());
  if (!rank.lastLine.empty()) text += "; its last message: " + rank.lastLine;
  return text + stoppedRanks();
}

// A rank that fails may only have waited for one of them.
std::string Launcher::stoppedRanks() const {
  std::string text;
  for (size_t r = 0; r < ranks_.size(); ++r)
    if (ranks_[r].process.stopped())
      text +=
          "; rank " + std::to_string(r) + " (pid " + std::to_string(ranks_[r].process.pid()) + ") is stopped";
  return text;
}

}  // namespace weft::netdriver
