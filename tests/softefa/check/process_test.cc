// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// Two processes: hosts are processes of one machine, and processes die.
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <poll.h>
#include <signal.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/softefa/check/node.h"
#include "tests/softefa/inbox.h"
#include "tests/support/catch.h"

using namespace softefa::check;
using namespace std::chrono_literals;

namespace {

// softefa-peer, for as long as this object lives.
class Peer {
 public:
  Peer() {
    std::array<int, 2> in{}, out{};
    REQUIRE(::pipe2(in.data(), 0) == 0);
    REQUIRE(::pipe2(out.data(), 0) == 0);
    ::setenv("SOFTEFA_FABRIC", testFabric().c_str(), 1);
    process_ = ::fork();
    if (process_ == 0) {
      ::dup2(in[0], STDIN_FILENO);
      ::dup2(out[1], STDOUT_FILENO);
      for (const int file : {in[0], in[1], out[0], out[1]}) ::close(file);
      ::execl(SOFTEFA_PEER, SOFTEFA_PEER, nullptr);
      ::_exit(127);
    }
    ::close(in[0]);
    ::close(out[1]);
    input_ = in[1];
    readFacts(out[0]);
  }
  ~Peer() {
    ::close(input_);
    if (process_ > 0) ::waitpid(process_, nullptr, 0);
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  void kill() {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    process_ = 0;
  }

  ibv_gid gid{};
  unsigned qpn = 0, qkey = 0, rkey = 0;
  unsigned long long address = 0;

 private:
  void readFacts(int file) {
    char line[200] = {}, hex[33] = {};
    pollfd ready{file, POLLIN, 0};
    REQUIRE(::poll(&ready, 1, 20000) == 1);
    REQUIRE(::read(file, line, sizeof line - 1) > 0);
    ::close(file);
    REQUIRE(std::sscanf(line, "%32s %u %u %u %llu", hex, &qpn, &qkey, &rkey, &address) == 5);
    for (size_t i = 0; i < 16; ++i) {
      unsigned byte = 0;
      std::sscanf(hex + 2 * i, "%2x", &byte);
      gid.raw[i] = static_cast<uint8_t>(byte);
    }
  }

  pid_t process_ = 0;
  int input_ = -1;
};

}  // namespace

TEST_CASE("two processes: sends, writes and reads between hosts") {
  const Peer peer;
  Node a("a");
  const Target to{a.handleFor(peer.gid), peer.qpn, peer.qkey};
  const auto data = a.memory(1 << 20), back = a.memory(1 << 20);
  for (size_t i = 0; i < data->bytes.size(); ++i) data->bytes[i] = static_cast<unsigned char>(i % 253);
  REQUIRE(a.send(1, to, data->piece(0, 4096)) == 0);
  CHECK(a.take().vendor == 0);
  REQUIRE(a.writeTo(2, to, data->piece(0, 1 << 20), peer.rkey, peer.address, 9) == 0);
  CHECK(a.take().vendor == 0);
  REQUIRE(a.readFrom(3, to, back->piece(0, 1 << 20), peer.rkey, peer.address) == 0);
  CHECK(a.take().vendor == 0);
  CHECK((back->bytes == data->bytes));
}

TEST_CASE("code 13: a process that was killed is given up") {
  Peer peer;
  Options impatient;
  impatient.extra = "SOFTEFA_UNRESPONSIVE=100ms";
  Node a("a", impatient);
  const Target to{a.handleFor(peer.gid), peer.qpn, peer.qkey};
  const auto data = a.memory(1 << 20);
  REQUIRE(a.send(1, to, data->piece(0, 8)) == 0);
  CHECK(a.take().vendor == 0);
  peer.kill();
  REQUIRE(a.writeTo(2, to, data->piece(0, 1 << 20), peer.rkey, peer.address) == 0);
  CHECK(a.take().vendor == 13);
}

TEST_CASE("a process that left in order leaves no queue pair behind") {
  Node a("a");
  ibv_gid gid{};
  Target to{};
  {
    const Peer peer;
    to = {a.handleFor(peer.gid), peer.qpn, peer.qkey};
    gid = peer.gid;
  }
  const auto data = a.memory(8);
  REQUIRE(a.send(1, to, data->piece(0, 8)) == 0);
  CHECK(a.take().vendor == 9);
}

TEST_CASE("the place of a killed process is taken by the next") {
  unsigned first = 0;
  {
    Peer peer;
    first = peer.qpn;
    peer.kill();
  }
  const Peer next;
  CHECK(next.qpn == first);
  Node a("a");
  const auto data = a.memory(8);
  REQUIRE(a.send(1, {a.handleFor(next.gid), next.qpn, next.qkey}, data->piece(0, 8)) == 0);
  CHECK(a.take().vendor == 0);
}

TEST_CASE("what is for an opening that is gone is nothing to the next one of that place") {
  Options slow;
  slow.faults = "delay=150ms";
  Node b("b", slow);
  const auto old = b.memory(8), fresh = b.memory(8);
  old->bytes.assign(8, 1);
  fresh->bytes.assign(8, 2);
  const bool reads = GENERATE(false, true);
  unsigned number = 0;
  {
    Node a("a");
    b.meet(a);
    const auto here = a.memory(8);
    number = a.qp->qp_num;
    REQUIRE((reads ? a.read(1, a.meet(b), here->piece(0, 8), *old)
                   : a.write(1, a.meet(b), here->piece(0, 8), *old)) == 0);
    const auto end = std::chrono::steady_clock::now() + 20s;
    while (b.counter("packetsHeld") == 0 && std::chrono::steady_clock::now() < end) a.next(1ms);
  }
  Node a("a");
  REQUIRE(a.qp->qp_num == number);
  const auto here = a.memory(8);
  const uint32_t wrongKey = fresh->mr->rkey + (1 << 8);
  REQUIRE((reads ? a.read(1, a.meet(b), here->piece(0, 8), *fresh)
                 : a.writeTo(1, a.meet(b), here->piece(0, 8), wrongKey, fresh->address())) == 0);
  CHECK(a.take().vendor == (reads ? 0 : 7));
  CHECK(here->bytes[0] == (reads ? 2 : 0));
}

TEST_CASE("a producer that is killed while it fills a slot does not block the others") {
  const std::string folder = "/dev/shm/softefa-" + std::to_string(::getuid()) + "/" + testFabric() + "/wedge";
  const auto inbox = softefa::Inbox::own(folder);
  REQUIRE(inbox);
  softefa::PacketHeader header;
  const pid_t child = ::fork();
  if (child == 0) {
    inbox->abandonSlot();
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  REQUIRE(inbox->put(header, {}));
  const auto end = std::chrono::steady_clock::now() + 20s;
  while (!inbox->front() && std::chrono::steady_clock::now() < end) inbox->sleep(inbox->bell(), 1ms);
  CHECK(inbox->front());
  inbox->pop();
  for (uint32_t i = 0; i < 3 * softefa::kSlots; ++i) {  // and the ring goes on round
    REQUIRE(inbox->put(header, {}));
    REQUIRE(inbox->front());
    inbox->pop();
  }
  for (uint32_t i = 0; i < softefa::kSlots; ++i) REQUIRE(inbox->put(header, {}));
  CHECK_FALSE(inbox->put(header, {}));
  inbox->close();
}
