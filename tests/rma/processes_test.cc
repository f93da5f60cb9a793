// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "providers/local/transport.h"
#include "providers/tcp/transport.h"
#include "src/base/random.h"
#include "tests/rma/teams.h"
#include "tests/support/catch.h"
#include "tests/support/patience.h"

// Ranks of a team that are processes of their own, and one that is killed.
using namespace weft;
using namespace weft::rma;
using namespace weft::test;

namespace {

constexpr size_t kWindow = size_t{10} << 20;
constexpr Milliseconds kCloseTimeout{1000};

// The handle of a listener, over a pipe.
void sendHandle(int fd, const coll::HandleBytes& handle) {
  REQUIRE(::write(fd, handle.data(), handle.size()) == static_cast<ssize_t>(handle.size()));
}
coll::HandleBytes receiveHandle(int fd) {
  coll::HandleBytes handle;
  REQUIRE(::read(fd, handle.data(), handle.size()) == static_cast<ssize_t>(handle.size()));
  return handle;
}

// A rank in a process of its own, over tcp or through shared memory.
struct ProcessRank {
  core::ContextRef context;
  std::unique_ptr<core::ListenComm> listener;
  std::unique_ptr<Team> team;
  std::vector<std::byte> bytes = std::vector<std::byte>(kWindow);
  Window* window = nullptr;

  ProcessRank(int rank, int readFrom, int writeTo, bool shared) {
    Config config;
    config.socketIfname = "=lo";
    config.closeTimeout = kCloseTimeout;
    core::NetOptions options;
    options.config = config;
    options.transport = tcp::makeTransport(config);
    if (shared) options.local = local::makeTransport(config);
    auto net = core::Net::create(std::move(options));
    REQUIRE(net);
    core::ContextOptions of;
    of.perCommunicator = true;
    of.communicator = 9;
    context = (*net)->openContext(std::move(of));
    coll::HandleBytes mine{};
    auto listening = (*net)->listen(context, 0, mine);
    REQUIRE(listening);
    listener = listening.take();
    sendHandle(writeTo, mine);
    const coll::HandleBytes other = receiveHandle(readFrom);
    coll::MeshOptions mesh;
    mesh.context = context;
    mesh.listener = listener.get();
    mesh.rank = rank;
    mesh.handles = rank == 0 ? std::vector{mine, other} : std::vector{other, mine};
    auto opened = Team::open(std::move(mesh));
    REQUIRE(opened);
    team = opened.take();
    MemoryDesc desc;
    desc.address = bytes.data();
    desc.length = bytes.size();
    auto made = team->registerMemory(desc, false);
    REQUIRE(made);
    window = *made;
  }
};

// Rank 1, in a child that ends with this object, and rank 0 here.
struct TwoProcesses {
  int toChild[2] = {}, toParent[2] = {};
  pid_t child = -1;
  std::unique_ptr<ProcessRank> rank;

  TwoProcesses(bool shared, const std::function<void(ProcessRank&)>& work) {
    REQUIRE(::pipe(toChild) == 0);
    REQUIRE(::pipe(toParent) == 0);
    child = ::fork();
    if (child == 0) {
      ProcessRank other(1, toChild[0], toParent[1], shared);
      while (other.team->progress()) work(other);
      ::_exit(0);
    }
    rank = std::make_unique<ProcessRank>(0, toParent[0], toChild[1], shared);
  }
  ~TwoProcesses() {
    ::kill(child, SIGKILL);
    int status = 0;
    CHECK(::waitpid(child, &status, 0) == child);
    for (const int fd : {toChild[0], toChild[1], toParent[0], toParent[1]}) ::close(fd);
  }
};

// Where the signals lie in a window: behind the bytes.
constexpr size_t kHalf = kWindow / 2 - 64;
constexpr size_t kSignal = kWindow - 64;

uint64_t seen(ProcessRank& rank) {
  auto* word = reinterpret_cast<uint64_t*>(rank.bytes.data() + kSignal);
  return std::atomic_ref<uint64_t>(*word).load(std::memory_order_acquire);
}

Put putTo(uint32_t to, ProcessRank& from, uint64_t sourceOffset, uint64_t bytes, uint64_t targetOffset) {
  Put put;
  put.rank = to;
  put.bytes = bytes;
  put.source = put.target = put.signal = from.window;
  put.sourceOffset = sourceOffset;
  put.targetOffset = targetOffset;
  put.signals = true;
  put.signalOffset = kSignal;
  put.addend = bytes;
  return put;
}

}  // namespace

TEST_CASE("one-sided: between processes, over tcp and through shared memory") {
  for (const bool shared : {false, true}) {
    INFO((shared ? "shared memory" : "tcp"));
    uint64_t before = 0;
    // The child sends back whatever a signal tells it of.
    TwoProcesses two(shared, [&](ProcessRank& child) {
      const uint64_t bytes = seen(child) - before;
      if (bytes == 0) return;
      before += bytes;
      (void)child.team->put(putTo(0, child, 0, bytes, kHalf));
    });
    ProcessRank& rank = *two.rank;
    SeededRandom random(7);
    uint64_t sum = 0;
    for (const uint64_t bytes : {1, 8, 192, 193, 5000, 65'536, 1'000'001, 4'000'000}) {
      INFO(bytes << " bytes");
      for (size_t i = 0; i < bytes; i++) rank.bytes[i] = static_cast<std::byte>(random.next());
      Request* request = begun(rank.team->put(putTo(1, rank, 0, bytes, 0)));
      sum += bytes;
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10 * patience());
      for (bool done = false; !done || seen(rank) < sum;) {
        REQUIRE(rank.team->progress());
        if (!done) REQUIRE(rank.team->test(request, &done));
        REQUIRE(std::chrono::steady_clock::now() < limit);
      }
      CHECK(seen(rank) == sum);
      CHECK(std::memcmp(rank.bytes.data(), rank.bytes.data() + kHalf, bytes) == 0);
    }
  }
}

TEST_CASE("one-sided: a rank whose process is killed is named, and ends what waits for it") {
  TwoProcesses two(false, [](ProcessRank&) {});
  ProcessRank& rank = *two.rank;
  Put put;
  put.rank = 1;
  put.bytes = rank.bytes.size();
  put.source = put.target = rank.window;
  Request* first = begun(rank.team->put(put));
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10 * patience());
  for (bool done = false; !done;) {
    REQUIRE(rank.team->test(first, &done));
    REQUIRE(std::chrono::steady_clock::now() < limit);
  }
  // Event: the other process is gone while a put is under way. Expect: its request, and progress, say so.
  ::kill(two.child, SIGKILL);
  Request* second = begun(rank.team->put(put));
  std::string failure;
  while (failure.empty()) {
    bool done = false;
    if (const Status moved = rank.team->progress(); !moved) failure = moved.error().message();
    if (failure.empty()) (void)rank.team->test(second, &done);
    if (!done) continue;
    auto next = rank.team->put(put);
    if (next)
      second = *next;
    else
      failure = next.error().message();
    REQUIRE(std::chrono::steady_clock::now() < limit);
  }
  INFO(failure);
  CHECK(failure.find("rank 1: ") != std::string::npos);
  CHECK(failure.find("pid " + std::to_string(two.child)) != std::string::npos);
  bool done = false;
  CHECK_FALSE(rank.team->test(second, &done));
  CHECK(rank.team->failed());
  CHECK_FALSE(rank.team->put(put));
  const auto begin = std::chrono::steady_clock::now();
  rank.team->close();
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5 * patience()));
}

// The memory is given back when the fabric is through with it, which takes a while where the other end does
// not answer. NCCL's proxy goes on meanwhile.
TEST_CASE("one-sided: a stopped rank holds up whoever gives a window up or closes, and nobody else") {
  const bool closes = GENERATE(false, true);
  CAPTURE(closes);
  TwoProcesses two(false, [](ProcessRank&) {});
  ProcessRank& rank = *two.rank;
  ::kill(two.child, SIGSTOP);
  Get get;
  get.rank = 1;
  get.bytes = size_t{1} << 20;
  get.remote = get.local = rank.window;
  (void)begun(rank.team->get(get));
  using Clock = std::chrono::steady_clock;
  std::atomic<bool> over{false};
  Clock::duration longest{};
  std::thread proxy([&] {
    while (!over) {
      const auto begin = Clock::now();
      (void)rank.team->progress();
      longest = std::max(longest, Clock::now() - begin);
    }
  });
  const auto begin = Clock::now();
  if (closes)
    rank.team->close();
  else
    CHECK(rank.team->deregisterMemory(rank.window));
  const auto took = Clock::now() - begin;
  over = true;
  proxy.join();
  INFO(std::chrono::duration<double>(took).count()
       << " s, " << std::chrono::duration<double>(longest).count());
  CHECK(took > kCloseTimeout);
  CHECK(longest < kCloseTimeout / 2);
}
