// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/random.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/catch.h"

// A process that gets no random bytes: by a filter of system calls, as container runtimes have them.
using namespace weft;

namespace {

// From now on getrandom fails, and where `noFiles` nothing can be opened either.
bool forbid(bool noFiles) {
  const auto number = static_cast<uint32_t>(offsetof(seccomp_data, nr));
  const auto open = noFiles ? static_cast<uint32_t>(SYS_openat) : static_cast<uint32_t>(SYS_getrandom);
  std::array<sock_filter, 5> filter{{
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, number},
      {BPF_JMP | BPF_JEQ | BPF_K, 1, 0, static_cast<uint32_t>(SYS_getrandom)},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, open},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | ENOSYS},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  }};
  sock_fprog program{filter.size(), filter.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

constexpr int kNoFilters = 77;

// What a child of this process does below the filter: its status as of waitpid.
template <class Act>
int statusOf(bool noFiles, Act act) {
  const pid_t child = ::fork();
  if (child == 0) {
    (void)::signal(SIGABRT, SIG_DFL);  // the test framework's would report a failure
    ::_exit(forbid(noFiles) ? act() : kNoFilters);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status;
}

bool couldNotForbid(int status) {
  return WIFEXITED(status) && WEXITSTATUS(status) == kNoFilters;
}

int fill() {
  std::array<std::byte, 64> secret{};
  fillRandom(secret);
  return secret == std::array<std::byte, 64>{} ? 1 : 0;
}

}  // namespace

TEST_CASE("without getrandom the kernel's device fills secrets") {
  const int status = statusOf(false, fill);
  if (couldNotForbid(status)) return;
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

TEST_CASE(
    "a secret of zeros is never handed out: a network is not opened, and a handshake ends the process") {
  const int refused = statusOf(true, [] { return checkRandom() ? 1 : 0; });
  if (couldNotForbid(refused)) return;
  CHECK((WIFEXITED(refused) && WEXITSTATUS(refused) == 0));
  const int ended = statusOf(true, fill);
  CHECK((WIFSIGNALED(ended) && WTERMSIG(ended) == SIGABRT));
}

TEST_CASE("where the kernel gives random bytes nothing is refused") {
  CHECK(checkRandom());
  CHECK(fill() == 0);
}
