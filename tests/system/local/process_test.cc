// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <csignal>
#include <functional>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/fd.h"
#include "tests/system/local/local_ends.h"

// A lane between two processes, of which one is killed, stopped, or simply ends.
using namespace weft;
using namespace weft::test;
using enum CompletionKind;

namespace {

constexpr size_t kMiB = size_t{1} << 20;

// What the two say to each other before they have a lane.
struct Introduction {
  std::array<std::byte, 256> address;
  std::array<std::byte, 64> blob;
  size_t addressBytes, blobBytes;
};

void introduce(SeamEnd& end, const Fd& link) {
  Introduction out{};
  out.addressBytes = end.lane->address().size();
  out.blobBytes = end.memory->blob().size();
  std::copy_n(end.lane->address().begin(), out.addressBytes, out.address.begin());
  std::copy_n(end.memory->blob().begin(), out.blobBytes, out.blob.begin());
  if (::send(link.get(), &out, sizeof out, MSG_NOSIGNAL) != sizeof out) std::abort();
  Introduction in{};
  if (::recv(link.get(), &in, sizeof in, MSG_WAITALL) != sizeof in) std::abort();
  if (!end.lane->connect(std::span(in.address).first(in.addressBytes))) std::abort();
  end.remote = end.lane->import(std::span(in.blob).first(in.blobBytes)).take();
}

// The other process: what `then` says once its lane stands. It ends with its parent's end of the link.
class Peer {
 public:
  explicit Peer(const std::function<void(SeamEnd&, const Fd& link)>& then) {
    int both[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both) == 0);
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      ::close(both[0]);
      const Fd link(both[1]);
      auto transport = local::makeTransport(localConfig());
      SeamEnd end(*transport, kMiB);
      end.fill(2);
      introduce(end, link);
      while (end.count(connected) == 0) end.poll();
      then(end, link);
      ::_exit(0);
    }
    ::close(both[1]);
    link_ = Fd(both[0]);
  }
  ~Peer() {
    kill(SIGKILL);
    int status = 0;
    ::waitpid(pid_, &status, 0);
  }
  void kill(int signal) const { ::kill(pid_, signal); }
  const Fd& link() const { return link_; }

 private:
  pid_t pid_;
  Fd link_;
};

void pollForEver(SeamEnd& end, const Fd&) {
  for (;;) end.poll();
}

struct Ours {
  explicit Ours(const Peer& peer) : transport(local::makeTransport(localConfig())), end(*transport, kMiB) {
    end.fill(1);
    introduce(end, peer.link());
    REQUIRE(pumpUntil({&end}, [&] { return end.count(connected, true) == 1; }));
  }
  std::unique_ptr<Transport> transport;
  SeamEnd end;
};

bool waitsFor(const std::function<bool()>& what, Milliseconds most) {
  const auto deadline = std::chrono::steady_clock::now() + most * patience();
  while (!what())
    if (std::chrono::steady_clock::now() > deadline) return false;
  return true;
}

}  // namespace

TEST_CASE("local: two processes exchange messages of all sizes") {
  const Peer peer([](SeamEnd& end, const Fd&) {
    for (size_t looked = 0;;) {  // each message goes back as it came
      end.poll();
      for (; looked < end.seen.size(); looked++) {
        if (end.seen[looked].kind != notified) continue;
        const Work back = end.work(Opcode::writeNotify, 0, 0, end.seen[looked].length);
        while (!end.post(back)) end.poll();
      }
    }
  });
  Ours ours(peer);
  size_t round = 0;
  for (const size_t size : {0u, 1u, 8u, 80u, 81u, 5000u, 16385u, 70000u, 1u << 20}) {
    CAPTURE(size);
    ours.end.fill(round);
    const std::vector<uint8_t> sent = ours.end.bytes;
    REQUIRE(pumpUntil({&ours.end},
                      [&] { return ours.end.post(ours.end.work(Opcode::writeNotify, 0, 0, size)); }));
    // What was sent must not change before it landed, and the answer lands in the same place.
    ours.end.seen.clear();
    REQUIRE(pumpUntil({&ours.end}, [&] { return ours.end.count(notified) == 1; }));
    CHECK(ours.end.first(notified)->length == size);
    CHECK(ours.end.bytes == sent);
    round++;
  }
}

TEST_CASE("local: a peer that is killed breaks the lane in a moment") {
  const int working = GENERATE(0, 1, 2);
  const Peer peer(pollForEver);
  Ours ours(peer);
  if (working > 0) peer.kill(SIGSTOP);
  if (working > 0) ::usleep(20000);
  if (working > 0)
    REQUIRE(ours.end.post(ours.end.work(Opcode::writeNotify, 0, 0, working == 1 ? 100 : kMiB)));
  peer.kill(SIGKILL);
  const auto over = [&] {
    ours.end.poll();
    return ours.end.count(working > 0 ? sent : broken, false) == 1;
  };
  REQUIRE(waitsFor(over, Milliseconds(500)));
  CHECK(contains(ours.end.words, "the peer's process is gone"));
  ours.end.lane->retire();
  REQUIRE(pumpUntil({&ours.end}, [&] { return ours.end.count(retired, true) == 1; }));
}

TEST_CASE("local: a peer that ends without closing is missed in the same way") {
  const Peer peer([](SeamEnd& end, const Fd&) {
    while (end.count(notified) == 0) end.poll();
    ::_exit(0);
  });
  Ours ours(peer);
  REQUIRE(ours.end.post(ours.end.work(Opcode::writeNotify, 0, 0, 8)));
  const auto over = [&] {
    ours.end.poll();
    return ours.end.count(broken, false) + ours.end.count(sent, false) >= 1;
  };
  REQUIRE(waitsFor(over, Milliseconds(1000)));
  CHECK(contains(ours.end.words, "the peer's process is gone"));
}

TEST_CASE("local: a stopped peer breaks nothing, and what it did not land is fenced at once") {
  const Peer peer([](SeamEnd& end, const Fd& link) {
    char go = 0;
    if (::recv(link.get(), &go, 1, 0) != 1) return;  // sleeps here, between two polls
    for (int i = 0; i < 1000; i++) end.poll();
    const char landed = end.count(notified) > 0 ? 'y' : 'n';
    (void)::send(link.get(), &landed, 1, MSG_NOSIGNAL);
    (void)::recv(link.get(), &go, 1, 0);
  });
  Ours ours(peer);
  peer.kill(SIGSTOP);
  REQUIRE(ours.end.post(ours.end.work(Opcode::writeNotify, 0, 0, 300000, 5)));
  pump({&ours.end}, 50000);
  CHECK(ours.end.count(broken) + ours.end.count(sent) == 0);
  ours.end.lane->retire();
  REQUIRE(waitsFor([&] { return ours.end.poll(), ours.end.count(retired, true) == 1; }, Milliseconds(200)));
  CHECK(ours.end.count(sent, false) == 1);
  peer.kill(SIGCONT);
  REQUIRE(::send(peer.link().get(), "g", 1, MSG_NOSIGNAL) == 1);
  char landed = 0;
  REQUIRE(::recv(peer.link().get(), &landed, 1, 0) == 1);
  CHECK(landed == 'n');
}

TEST_CASE("local: a peer that dies before it looked for us fails the connecting") {
  auto transport = local::makeTransport(localConfig());
  SeamEnd end(*transport, 4096);
  int both[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both) == 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    auto theirs = local::makeTransport(localConfig());
    SeamEnd other(*theirs, 4096);
    const auto address = other.lane->address();
    if (::send(both[1], address.data(), address.size(), 0) < 0) ::_exit(1);
    for (;;) ::pause();
  }
  std::array<std::byte, 256> address{};
  const ssize_t bytes = ::recv(both[0], address.data(), address.size(), 0);
  REQUIRE(bytes > 0);
  REQUIRE(end.lane->connect(std::span(address).first(static_cast<size_t>(bytes))));
  pump({&end}, 100);
  CHECK(end.count(connected) == 0);
  ::kill(pid, SIGKILL);
  int status = 0;
  ::waitpid(pid, &status, 0);
  REQUIRE(pumpUntil({&end}, [&] { return end.count(connected, false) == 1; }));
  CHECK(contains(end.words, "the peer's process is gone"));
  ::close(both[0]);
  ::close(both[1]);
}
