// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/catch.h"

using namespace weft;

namespace {

bool isOpen(int fd) {
  return fcntl(fd, F_GETFD) >= 0;
}

// What a forked child sees of two descriptors: bit 0 the first is open, bit 1 the second.
int openInChild(int first, int second) {
  const pid_t child = fork();
  if (child == 0) _exit((isOpen(first) ? 1 : 0) | (isOpen(second) ? 2 : 0));
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WEXITSTATUS(status);
}

}  // namespace

TEST_CASE("a private descriptor is closed in forked children and stays open here") {
  const Fd kept(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const Fd ours(open("/dev/null", O_RDONLY | O_CLOEXEC));
  ours.closeInForkedChildren();
  CHECK(openInChild(kept.get(), ours.get()) == 1);
  CHECK(isOpen(ours.get()));
}

TEST_CASE("a number that was private and belongs to others now is left alone") {
  int number = -1;
  {
    const Fd ours(open("/dev/null", O_RDONLY | O_CLOEXEC));
    ours.closeInForkedChildren();
    number = ours.get();
  }
  const Fd others(open("/dev/null", O_RDONLY | O_CLOEXEC));
  REQUIRE(others.get() == number);
  CHECK(openInChild(others.get(), others.get()) == 3);
}
