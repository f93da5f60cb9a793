// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <csignal>
#include <fcntl.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "src/base/fd.h"
#include "src/control/handle.h"
#include "tests/support/catch.h"

// Another process for the tests of control links: started, read, stopped, continued, killed and always
// reaped.
namespace weft::control {

class ChildProcess {
 public:
  explicit ChildProcess(std::vector<std::string> command) {
    int in[2], out[2];
    REQUIRE(pipe2(in, O_CLOEXEC) == 0);
    REQUIRE(pipe2(out, O_CLOEXEC) == 0);
    std::vector<char*> argv;
    for (std::string& word : command) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(in[0], STDIN_FILENO);
      dup2(out[1], STDOUT_FILENO);
      execvp(argv[0], argv.data());
      _exit(127);
    }
    close(in[0]);
    close(out[1]);
    input_.reset(in[1]);
    output_.reset(out[0]);
  }
  ~ChildProcess() { kill(); }

  pid_t pid() const { return pid_; }
  void signal(int number) const { REQUIRE(::kill(pid_, number) == 0); }
  // All its threads stand still on return; a signal alone takes effect some time later.
  void stop() const {
    signal(SIGSTOP);
    REQUIRE(waitpid(pid_, nullptr, WUNTRACED) == pid_);
  }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

  std::string readLine() {
    std::string line;
    char c = 0;
    while (read(output_.get(), &c, 1) == 1 && c != '\n') line += c;
    return line;
  }

  Handle readHandle() {
    const std::string hex = readLine();
    REQUIRE(hex.size() == 2 * kHandleBytes);
    std::array<std::byte, kHandleBytes> raw{};
    for (size_t i = 0; i < raw.size(); i++) raw[i] = std::byte(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
    auto handle = Handle::decode(raw);
    REQUIRE(handle);
    return handle.take();
  }

 private:
  pid_t pid_ = 0;
  Fd input_;
  Fd output_;
};

}  // namespace weft::control
