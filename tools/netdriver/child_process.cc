// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/netdriver/child_process.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace weft::netdriver {

namespace {

constexpr Milliseconds kWaitPause{2};
constexpr int kExecFailed = 127;

// Runs in the child: nothing here may allocate or lock, the parent can have threads.
[[noreturn]] void becomeChild(const ChildProcess::Command& command, char* const* argv, int errorFd,
                              pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kExecFailed);  // the parent died before the line above
  for (const int fd : command.keepFds) fcntl(fd, F_SETFD, 0);
  if (errorFd >= 0) dup2(errorFd, STDERR_FILENO);
  execv(argv[0], argv);
  _exit(kExecFailed);
}

}  // namespace

Result<ChildProcess> ChildProcess::spawn(const Command& command) {
  std::vector<char*> argv;
  for (const std::string& argument : command.arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  int pipe[2] = {-1, -1};
  if (command.captureErrors && pipe2(pipe, O_CLOEXEC) != 0)
    return Error(Code::system, "start process", "pipe", errno);
  Fd readEnd(pipe[0]);
  Fd writeEnd(pipe[1]);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return Error(Code::resources, "start process", command.arguments[0], errno);
  if (pid == 0) becomeChild(command, argv.data(), writeEnd.get(), parent);
  if (readEnd) fcntl(readEnd.get(), F_SETFL, O_NONBLOCK);
  ChildProcess child;
  child.pid_ = pid;
  child.errors_ = std::move(readEnd);
  return child;
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      status_(std::exchange(other.status_, std::nullopt)),
      errors_(std::move(other.errors_)) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(status_, other.status_);
  std::swap(errors_, other.errors_);
  return *this;
}

ChildProcess::~ChildProcess() {
  if (pid_ <= 0 || poll()) return;
  signal(SIGKILL);
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
}

void ChildProcess::signal(int number) const {
  if (pid_ > 0 && !status_) ::kill(pid_, number);
}

std::optional<int> ChildProcess::poll() {
  int status = 0;
  if (!status_ && pid_ > 0 && waitpid(pid_, &status, WNOHANG) == pid_) status_ = status;
  return status_;
}

// The state stands behind the name, which may hold anything.
bool ChildProcess::stopped() const {
  if (pid_ <= 0 || status_) return false;
  std::ifstream file("/proc/" + std::to_string(pid_) + "/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const size_t name = text.rfind(") ");
  return name != std::string::npos && name + 2 < text.size() &&
         (text[name + 2] == 'T' || text[name + 2] == 't');
}

std::optional<int> ChildProcess::wait(Milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!poll() && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(kWaitPause);
  return status_;
}

std::string describeStatus(int waitStatus) {
  if (WIFSIGNALED(waitStatus)) {
    const int number = WTERMSIG(waitStatus);
    return "signal " + std::to_string(number) + " (" + strsignal(number) + ")";
  }
  return "exit code " + std::to_string(WEXITSTATUS(waitStatus));
}

std::string ownPath() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).string();
}

}  // namespace weft::netdriver
