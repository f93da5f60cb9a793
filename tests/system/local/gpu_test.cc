// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fstream>
#include <functional>
#include <future>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "providers/local/device.h"
#include "src/base/config.h"
#include "src/base/fd.h"
#include "src/mem/gpu/driver.h"
#include "tests/system/local/gpu_end.h"

// GPU memory between two processes, on any CUDA driver. The software GPU in strict mode ends a process whose
// processor touches what is a GPU's, and tells what a process has mapped; a real driver's mappings are all of
// the same files. A forked child of a process that has called CUDA must not call it, so the peer is forked
// first, and there is one of it for all.
using namespace weft;
using namespace weft::test;
using enum CompletionKind;
using mem::gpu::Driver;

namespace {

// Meets one end after the other, and sends each message back as it came.
[[noreturn]] void peerProcess(const Fd& link) {
  char again = 0;
  while (::recv(link.get(), &again, 1, MSG_WAITALL) == 1) {
    GpuEnd end(static_cast<Made>(again));
    end.introduce(link);
    for (size_t looked = 0; ::recv(link.get(), &again, 1, MSG_DONTWAIT) != 1;) {
      end.poll();
      for (; looked < end.seen.size(); looked++)
        if (end.seen[looked].kind == notified) end.write(4096, end.seen[looked].length);
    }
    if (::send(link.get(), &again, 1, MSG_NOSIGNAL) != 1) break;
  }
  ::_exit(0);
}

class Peer {
 public:
  Peer() {
    int both[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both) != 0) fail("no sockets");
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(both[0]);
      peerProcess(Fd(both[1]));
    }
    ::close(both[1]);
    link_ = Fd(both[0]);
  }
  ~Peer() {
    link_.reset();
    int status = 0;
    ::waitpid(pid_, &status, 0);
  }
  void meet(GpuEnd& end, Made made = Made::forSharing) const {
    say(made);
    end.introduce(link_);
  }
  void part() const {
    say(Made::not_);
    char answer = 0;
    REQUIRE(::recv(link_.get(), &answer, 1, MSG_WAITALL) == 1);
  }
  pid_t pid() const { return pid_; }

 private:
  void say(Made made) const { REQUIRE(::send(link_.get(), &made, 1, MSG_NOSIGNAL) == 1); }
  pid_t pid_;
  Fd link_;
};

void exchangeAll(GpuEnd& ours) {
  size_t round = 0;
  for (const size_t size : {1u, 8u, 80u, 81u, 5000u, 70000u, 1u << 20, (3u << 20) + 5}) {
    CAPTURE(size);
    ours.fill(round++);
    const std::vector<std::byte> sent = ours.content();
    ours.write(4096, size);
    REQUIRE(ours.pollUntil(notified, round));
    CHECK(ours.seen.back().length == size);
    CHECK(ours.content() == sent);
  }
  CHECK(ours.words.empty());
}

// While no copy ends, no call waits for one: several are under way, their messages are told of when they end,
// in order, and memory is not given back before.
void underWay(GpuEnd& ours) {
  constexpr size_t kMessages = 3;
  ours.write(4096, 1000);  // from the answer to its offer on, the memory is copied from GPU to GPU
  REQUIRE(ours.pollUntil(notified, 1));
  ours.fill(77);
  const std::vector<std::byte> sent = ours.content();
  const size_t before = ours.of(notified);
  std::atomic<bool> givenBack{false};
  std::thread giver;
  {
    const HeldCopies held;
    for (size_t i = 0; i < kMessages; i++) ours.write(4096, 100000 + i);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10) * patience();
    while (held.underWay() < static_cast<int>(kMessages) && std::chrono::steady_clock::now() < end)
      ours.poll();
    CHECK(held.underWay() == static_cast<int>(kMessages));
    CHECK(ours.of(notified) == before);
    giver = std::thread([&] {
      ours.memory.reset();
      givenBack = true;
    });
    for (int i = 0; i < 20; i++) std::this_thread::yield();
    CHECK_FALSE(givenBack);
  }
  giver.join();
  REQUIRE(ours.pollUntil(notified, before + kMessages));
  size_t expected = 100000;
  for (const Completion& one : std::span(ours.seen).last(kMessages)) {
    CHECK(one.kind == notified);
    CHECK(one.length == expected++);
  }
  CHECK(ours.content() == sent);
}

// A line of /proc/PID/maps. The software GPU has memory in files, of which each process maps its part.
struct MapsLine {
  unsigned long first = 0, end = 0, offset = 0, inode = 0;
  bool has(unsigned long of, unsigned long at) const {
    return inode == of && at >= offset && at - offset < end - first;
  }
};

std::vector<MapsLine> mapsOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/maps");
  std::vector<MapsLine> lines;
  for (std::string text; std::getline(file, text);) {
    MapsLine line;
    if (std::sscanf(text.c_str(), "%lx-%lx %*s %lx %*s %lu", &line.first, &line.end, &line.offset,
                    &line.inode) == 4)
      lines.push_back(line);
  }
  return lines;
}

// How often the peer has mapped what is at `address` here.
size_t mappedBy(const Peer& peer, const void* address) {
  const auto at = reinterpret_cast<unsigned long>(address);
  for (const MapsLine& ours : mapsOf(::getpid())) {
    if (at < ours.first || at >= ours.end) continue;
    const auto theirs = mapsOf(peer.pid());
    return static_cast<size_t>(std::count_if(theirs.begin(), theirs.end(), [&](const MapsLine& line) {
      return line.has(ours.inode, ours.offset + (at - ours.first));
    }));
  }
  fail("memory that is not mapped here");
}

void freed(GpuEnd& ours, const Peer& peer) {
  CHECK(mappedBy(peer, ours.data()) > 0);  // it copied from it
  ours.memory.reset();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10) * patience();
  while (mappedBy(peer, ours.data()) > 0 && std::chrono::steady_clock::now() < end) ours.poll();
  CHECK(mappedBy(peer, ours.data()) == 0);
}

}  // namespace

TEST_CASE("local: two processes exchange GPU memory, and keep none that was deregistered") {
  skipWithoutDriver();
  const Peer peer;
  for (const Made made : {Made::forSharing, Made::byCudaMalloc}) {
    CAPTURE(static_cast<int>(made));
    GpuEnd ours(made);
    peer.meet(ours, made);
    REQUIRE(ours.pollUntil(connected, 1));
    REQUIRE(ours.seen.front().ok);
    exchangeAll(ours);
    if (isSoftwareGpu()) freed(ours, peer);
    peer.part();
  }
  for (const Made made : {Made::forSharing, Made::byCudaMalloc}) {
    if (!isSoftwareGpu()) break;
    GpuEnd ours(made);
    peer.meet(ours, made);
    REQUIRE(ours.pollUntil(connected, 1));
    underWay(ours);
    peer.part();
  }
  GpuEnd without(Made::not_);
  peer.meet(without);
  REQUIRE(without.pollUntil(connected, 1));
  CHECK_FALSE(without.seen.front().ok);
  CHECK(contains(without.words, "WEFT_LOCAL_GPU"));
  peer.part();
}

namespace {

void join(GpuEnd& one, GpuEnd& other) {
  need(one.lane->connect(other.lane->address()));
  need(other.lane->connect(one.lane->address()));
  one.remote = need(one.lane->import(other.memory->blob()));
  other.remote = need(other.lane->import(one.memory->blob()));
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10) * patience();
  while ((one.of(connected) == 0 || other.of(connected) == 0) && std::chrono::steady_clock::now() < end) {
    one.poll();
    other.poll();
  }
  REQUIRE(one.of(connected) == 1);
  REQUIRE(other.of(connected) == 1);
}

// Lets the threads that map what was offered do it, and both ends hear of it.
void mapOffers(GpuEnd& one, GpuEnd& other) {
  for (GpuEnd* end : {&one, &other, &one, &other}) {
    one.poll();
    other.poll();
    std::promise<void> reached;
    static_cast<local::LocalDevice&>(*end->device).errands()->ask([&] { reached.set_value(); });
    reached.get_future().wait();
  }
  one.poll();
  other.poll();
}

}  // namespace

TEST_CASE("local: a fence is not passed while a copy is under way, whichever end is retired") {
  skipWithoutDriver();
  if (!GpuInUse() || !isSoftwareGpu()) return;  // it alone holds copies
  const bool receiverRetires = GENERATE(false, true);
  const bool late = GENERATE(false, true);  // the receiver's deadline passes meanwhile
  GpuEnd sender(Made::forSharing);
  GpuEnd receiver(Made::forSharing, late ? Milliseconds(20) : Milliseconds(std::chrono::minutes(10)));
  join(sender, receiver);
  sender.write(4096, 1000);  // from the answer to its offer on, the memory is copied from GPU to GPU
  const auto soon = std::chrono::steady_clock::now() + std::chrono::seconds(10) * patience();
  while (receiver.of(notified) == 0 && std::chrono::steady_clock::now() < soon)
    receiver.poll(), sender.poll();
  mapOffers(sender, receiver);
  sender.fill(5);
  receiver.fill(6);
  {
    const HeldCopies held;
    sender.write(4096, 70000);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10) * patience();
    while (held.underWay() == 0 && std::chrono::steady_clock::now() < end) receiver.poll();
    REQUIRE(held.underWay() == 1);
    if (receiverRetires) receiver.lane->retire();
    sender.lane->retire();
    if (late) std::this_thread::sleep_for(std::chrono::milliseconds(40));
    for (int i = 0; i < 1000; i++) sender.poll(), receiver.poll();
    CHECK(sender.of(retired) == 0);
    CHECK(receiver.of(retired) == 0);
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10) * patience();
  while (sender.of(retired) == 0 && std::chrono::steady_clock::now() < end) sender.poll(), receiver.poll();
  REQUIRE(sender.of(retired) == 1);
  CHECK(std::find_if(sender.seen.begin(), sender.seen.end(), [](const Completion& one) {
          return one.kind == retired;
        })->ok);
  while (receiverRetires && receiver.of(retired) == 0 && std::chrono::steady_clock::now() < end)
    receiver.poll();
  CHECK(receiver.of(retired) == (receiverRetires ? 1 : 0));
}

// The kernel of a collective waits for the thread that polls, so that one must wait for no kernel.
TEST_CASE("local: messages go on while calls of the driver wait for a kernel") {
  skipWithoutDriver();
  if (!GpuInUse() || !isSoftwareGpu() || !environmentValue("SOFTGPU_WAITS")) return;  // so it holds a kernel
  GpuEnd sender(Made::forSharing), receiver(Made::forSharing);
  join(sender, receiver);
  sender.fill(8);
  const std::vector<std::byte> sent = sender.content();
  const auto until = [&](auto reached) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10) * patience();
    while (!reached() && std::chrono::steady_clock::now() < end) sender.poll(), receiver.poll();
    return reached();
  };
  const auto arrives = [&](size_t length) {
    const size_t before = receiver.of(notified);
    sender.write(0, length);
    return until([&] { return receiver.of(notified) > before; }) &&
           std::memcmp(receiver.content().data(), sent.data(), length) == 0;
  };
  {
    // The receiver maps what the first message names.
    const HeldKernel kernel;
    for (const size_t length : {size_t{1000}, size_t{70000}, 3 * kMiB}) CHECK(arrives(length));
    CHECK(until([&] { return kernel.callsThatWait() == 1; }));
    CHECK(arrives(5 * kMiB));
  }
  CHECK(arrives(kBytes));
  {
    // It unmaps what is deregistered.
    const HeldKernel kernel;
    sender.memory.reset();
    CHECK(until([&] { return kernel.callsThatWait() == 1; }));
    for (int i = 0; i < 1000; i++) receiver.poll();
    // The lane goes with all that it has pinned.
    sender.lane.reset();
    receiver.lane.reset();
  }
  CHECK(sender.words.empty());
}
