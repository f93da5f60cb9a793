// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <fcntl.h>
#include <functional>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/fd.h"
#include "tests/system/local/local_ends.h"

// What the numbers in a lane's address mean: a process and a descriptor, as one PID namespace counts them. In
// another one they name something else, maybe ourselves. Wants namespaces of its own, as root or with a user
// namespace.
using namespace weft;
using namespace weft::test;
using enum CompletionKind;

namespace {

[[noreturn]] void fail(const char* why) {
  std::fprintf(stderr, "process %d: %s\n", ::getpid(), why);
  ::_exit(1);
}

void need(bool holds, const char* what) {
  if (!holds) fail(what);
}

std::pair<Fd, Fd> bothEnds() {
  int both[2];
  need(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, both) == 0, "no sockets");
  return {Fd(both[0]), Fd(both[1])};
}

void tell(const Fd& link, std::span<const std::byte> bytes) {
  need(::send(link.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()),
       "the link is gone");
}

void tell(const Fd& link, char word) {
  tell(link, std::as_bytes(std::span(&word, 1)));
}

Bytes hear(const Fd& link) {
  Bytes bytes(512);
  const ssize_t length = ::recv(link.get(), bytes.data(), bytes.size(), 0);
  bytes.resize(length > 0 ? static_cast<size_t>(length) : 0);
  return bytes;
}

bool hears(const Fd& link, char word) {
  const Bytes heard = hear(link);
  return heard.size() == 1 && heard[0] == std::byte(word);
}

void join(SeamEnd& end, const Fd& link) {
  tell(link, end.lane->address());
  need(static_cast<bool>(end.lane->connect(hear(link))), "an address is refused");
  need(pumpUntil({&end}, [&] { return end.count(connected) == 1; }), "no lane");
  need(end.count(connected, true) == 1, "no lane to the neighbour");
}

// Long enough for the looks at a peer, which come every 5 ms.
void pollAWhile(SeamEnd& end) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
  while (std::chrono::steady_clock::now() < until) end.poll();
}

// Has a lane to its parent, and says when asked whether that lives.
[[noreturn]] void neighbour(const Fd& link) {
  auto transport = local::makeTransport(localConfig());
  SeamEnd end(*transport, 4096);
  join(end, link);
  while (!hear(link).empty()) {
    pollAWhile(end);
    tell(link, end.count(broken) == 0 ? 'y' : 'n');
  }
  ::_exit(0);
}

// The first process of a namespace: a lane to a process beside it, and one to the first process of the other
// namespace, which cannot be had.
void firstProcess(const Fd& link) {
  auto [ours, theirs] = bothEnds();
  const pid_t pid = ::fork();
  need(pid >= 0, "no child");
  if (pid == 0) {
    ours.reset();
    neighbour(theirs);
  }
  theirs.reset();
  auto transport = local::makeTransport(localConfig());
  SeamEnd near(*transport, 4096);
  join(near, ours);
  SeamEnd far(near, 4096);
  tell(link, near.lane->address());
  const Bytes other = hear(link);
  const auto here = local::decodeAddress(near.lane->address()), there = local::decodeAddress(other);
  need(there && here->pid == there->pid && here->fd == there->fd, "the numbers do not collide");
  need(static_cast<bool>(far.lane->connect(other)), "an address is refused");
  need(pumpUntil({&far}, [&] { return far.count(connected, false) == 1; }), "a lane where there is none");
  tell(ours, 'q');
  need(hears(ours, 'y'), "the neighbour's lane broke");
  pollAWhile(near);
  need(near.count(broken) == 0, "the lane to the neighbour broke");
  need(contains(far.words, "PID namespace"), far.words.front().c_str());
}

// Runs `then` as process 1 of a new PID namespace with a /proc of its own; its children end with it.
[[noreturn]] void inOwnProcesses(const std::function<void()>& then) {
  const int user = ::geteuid() == 0 ? 0 : CLONE_NEWUSER;
  need(::unshare(user | CLONE_NEWPID | CLONE_NEWNS) == 0, "no namespaces");
  const pid_t pid = ::fork();
  need(pid >= 0, "no child");
  if (pid == 0) {
    need(::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0, "mounts stay shared");
    need(::mount("proc", "/proc", "proc", 0, nullptr) == 0, "no /proc");
    then();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

// A process in a namespace of its own, of which this one has a link to.
class World {
 public:
  World() {
    auto [ours, theirs] = bothEnds();
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      // The same descriptors in each of them, so that what they open has the same numbers.
      constexpr int kLink = 3;
      need(::dup2(theirs.get(), kLink) == kLink, "no descriptor");
      for (int fd = kLink + 1; fd < 256; fd++) ::close(fd);
      const Fd link(kLink);
      inOwnProcesses([&] { firstProcess(link); });
    }
    link_ = std::move(ours);
  }
  ~World() {
    link_.reset();
    if (pid_ > 0) (void)wentWell();
  }
  const Fd& link() const { return link_; }
  bool wentWell() {
    int status = 0;
    ::waitpid(std::exchange(pid_, 0), &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

 private:
  pid_t pid_ = 0;
  Fd link_;
};

}  // namespace

TEST_CASE("local: a peer of another PID namespace with our numbers leaves the lanes that we have alone") {
  World one, two;
  const Bytes first = hear(one.link()), second = hear(two.link());
  REQUIRE_FALSE(first.empty());
  REQUIRE_FALSE(second.empty());
  tell(one.link(), second);
  tell(two.link(), first);
  CHECK(one.wentWell());
  CHECK(two.wentWell());
}

// The child is made past the C library, so that nothing of ours runs in it.
TEST_CASE("local: a child that inherits all descriptors does not stand for its dead parent") {
  auto [ours, theirs] = bothEnds();
  const pid_t pid = ::fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    ours.reset();
    auto transport = local::makeTransport(localConfig());
    SeamEnd end(*transport, 4096);
    join(end, theirs);
    if (::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr) == 0) {
      char word = 0;
      while (::recv(theirs.get(), &word, 1, 0) > 0) continue;
      ::_exit(0);
    }
    tell(theirs, 'c');
    for (;;) ::pause();
  }
  theirs.reset();
  auto transport = local::makeTransport(localConfig());
  SeamEnd end(*transport, 4096);
  join(end, ours);
  REQUIRE(hears(ours, 'c'));
  ::kill(pid, SIGKILL);
  int status = 0;
  ::waitpid(pid, &status, 0);
  CHECK(pumpUntil({&end}, [&] { return end.count(broken, false) == 1; }));
  CHECK(contains(end.words, "the peer's process is gone"));
}
