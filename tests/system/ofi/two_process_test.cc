// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <csignal>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/fd.h"
#include "tests/support/catch.h"
#include "tests/system/ofi/lanes.h"
#include "tests/system/ofi/peer_wire.h"

// The seam between two processes, over each software provider of this machine. Killing the peer is tried only
// where a dead process cannot take the living one with it: shm keeps locks in its peer's memory.
using namespace weft;
using namespace weft::test;

namespace {

class PeerProcess {
 public:
  explicit PeerProcess(const std::string& provider) {
    int in[2], out[2];
    REQUIRE(::pipe2(in, O_CLOEXEC) == 0);
    REQUIRE(::pipe2(out, O_CLOEXEC) == 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(in[0], STDIN_FILENO);
      ::dup2(out[1], STDOUT_FILENO);
      ::execl(WEFT_OFI_PEER, "ofi_peer", provider.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(in[0]);
    ::close(out[1]);
    to_.reset(in[1]);
    from_.reset(out[0]);
  }
  ~PeerProcess() {
    to_.reset();
    signal(SIGCONT);
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  }

  void connect(OfiSide* side) const {
    const Bytes address = readLine(from_.get());
    const Bytes blob = readLine(from_.get());
    REQUIRE_FALSE(blob.empty());
    writeLine(to_.get(), side->lane->address());
    writeLine(to_.get(), side->memory->blob());
    const Status started = side->lane->connect(address);
    REQUIRE(started);
    side->remote = OfiSide::REQUIRED(side->lane->import(blob));
    REQUIRE(pollUntil({side}, [&] { return side->count(CompletionKind::connected) == 1; }));
  }
  void signal(int number) const {
    if (pid_ > 0) ::kill(pid_, number);
  }
  void killAndReap() {
    signal(SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  Fd to_, from_;
};

std::vector<std::string> socketProviders() {
  std::vector<std::string> found = softwareProviders();
  found.erase(std::remove(found.begin(), found.end(), "shm"), found.end());
  return found;
}

Work pingOf(OfiSide& a, uint32_t i, size_t length) {
  Work work = a.work(Opcode::writeNotify, static_cast<size_t>(i) * 64 % a.buffer.size(), length, i);
  work.imm = i;
  work.unsignaled = true;
  return work;
}

}  // namespace

TEST_CASE("bytes go to another process and come back") {
  const std::string provider = pick(softwareProviders());
  if (provider.empty()) return;
  CAPTURE(provider);
  OfiSide a(provider);
  PeerProcess peer(provider);
  peer.connect(&a);
  for (uint32_t i = 0; i < 2000; i++) {
    const size_t length = i % 65;
    const Work work = pingOf(a, i, length);
    std::fill_n(static_cast<unsigned char*>(work.local), length, static_cast<unsigned char>(i));
    REQUIRE(pollUntil({&a}, [&] { return a.post(work); }));
    REQUIRE(pollUntil({&a}, [&] { return a.count(CompletionKind::notified) == 1; }));
    const Completion* echo = a.first(CompletionKind::notified);
    REQUIRE(echo->imm == i);
    REQUIRE(echo->length == length);
    const auto* bytes = static_cast<const unsigned char*>(work.local);
    REQUIRE(std::all_of(bytes, bytes + length, [&](unsigned char c) { return c == (i & 255); }));
    a.seen.clear();
  }
}

TEST_CASE("a peer that is killed fails what is in flight") {
  const std::string provider = pick(socketProviders());
  if (provider.empty()) return;
  CAPTURE(provider);
  OfiSide a(provider);
  PeerProcess peer(provider);
  peer.connect(&a);
  peer.signal(SIGSTOP);
  for (int i = 0; i < 8; i++) {
    Work work = a.work(Opcode::write, 0, 4096, 1);
    work.delivered = true;
    REQUIRE(a.post(work));
  }
  a.poll();
  peer.killAndReap();
  REQUIRE(pollUntil({&a}, [&] { return a.count(CompletionKind::sent, false) == 8; }));
  REQUIRE_FALSE(a.words.empty());
  CHECK(a.words.front().find("ofi:" + provider) != std::string::npos);
  CHECK_FALSE(a.post(a.work(Opcode::write, 0, 1, 1)));
  a.lane->retire();
  REQUIRE(pollUntil({&a}, [&] { return a.count(CompletionKind::retired) == 1; }));
}

TEST_CASE("a lane whose peer died idle breaks when it is used") {
  std::vector<std::string> connected = socketProviders();
  connected.erase(std::remove(connected.begin(), connected.end(), "tcp;ofi_rxm"), connected.end());
  const std::string provider = pick(connected);
  if (provider.empty()) return;
  CAPTURE(provider);
  OfiSide a(provider);
  PeerProcess peer(provider);
  peer.connect(&a);
  peer.killAndReap();
  const auto failed = [&] {
    Work work = a.work(Opcode::write, 0, 64, 1);
    work.delivered = true;
    (void)a.post(work);
    return a.count(CompletionKind::broken, false) + a.count(CompletionKind::sent, false) > 0;
  };
  REQUIRE(pollUntil({&a}, failed));
  REQUIRE_FALSE(a.words.empty());
  CHECK(a.words.front().find("127.0.0.1") != std::string::npos);
}

TEST_CASE("a stopped peer cannot acknowledge, and retiring says so") {
  const std::string provider = pick(socketProviders());
  if (provider.empty()) return;
  CAPTURE(provider);
  OfiSide a(provider);
  PeerProcess peer(provider);
  peer.connect(&a);
  peer.signal(SIGSTOP);
  REQUIRE(a.post(a.work(Opcode::write, 0, 4096, 1)));
  a.lane->retire();
  REQUIRE(pollUntil({&a}, [&] { return a.count(CompletionKind::retired, false) == 1; }));
  CHECK(a.seen.back().kind == CompletionKind::retired);
}

TEST_CASE("a connection to a peer that is gone ends by its deadline") {
  const std::string provider = pick(socketProviders());
  if (provider.empty()) return;
  CAPTURE(provider);
  OfiSide a(provider);
  Bytes address;
  {
    OfiSide gone(provider);
    const auto bytes = gone.lane->address();
    address.assign(bytes.begin(), bytes.end());
  }
  const Status started = a.lane->connect(address);
  REQUIRE(started);
  REQUIRE(pollUntil({&a}, [&] { return a.count(CompletionKind::connected, false) == 1; }));
  a.lane->retire();
  REQUIRE(pollUntil({&a}, [&] { return a.count(CompletionKind::retired) == 1; }));
}
