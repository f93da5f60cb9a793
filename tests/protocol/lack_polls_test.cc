// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "providers/tcp/transport.h"
#include "src/base/log.h"
#include "tests/support/catch.h"
#include "tests/support/engine_pair.h"

// Memory is refused in the middle of a poll, once at each place where it is asked for. The call that polls
// fails. What the poll had found is not lost with it: each message arrives, or its comm ends with a reason. A
// program of its own, because it replaces malloc.
using namespace weft;
using namespace weft::core;
using namespace weft::test;

extern "C" {
void* __libc_malloc(size_t);
void* __libc_memalign(size_t, size_t);
}

namespace {

bool armed = false;  // the one thread of the test
bool refused = false;
int before = 0;  // so many are still granted

bool refuses() {
  if (!armed || refused || before-- > 0) return false;
  errno = ENOMEM;
  return refused = true;
}

}  // namespace

extern "C" void* malloc(size_t n) {
  return refuses() ? nullptr : __libc_malloc(n);
}
extern "C" void* aligned_alloc(size_t alignment, size_t n) {
  return refuses() ? nullptr : __libc_memalign(alignment, n);
}

namespace {

struct Silence {
  Silence() {
    setLogSink([](LogLevel, const char*, int, const char*) {});
  }
  ~Silence() { setLogSink(nullptr); }
};

constexpr int kTags = 12;  // more than a comm's table begins with

// Messages of as many tags, which nobody has posted receives for, and one on a connection beside them, which
// somebody waits for.
class Scene {
 public:
  Scene(WorldOptions options, size_t bytes) : world_(std::move(options)), bytes_(bytes) {
    many_ = world_.connect(0);
    beside_ = world_.connect(0);
    to_ = std::make_unique<Buffer>(*beside_.recv, bytes_);
    into_ = std::make_unique<Buffer>(*many_.recv, bytes_);
    waits_ = receive(*beside_.recv, *to_, 1);
    for (int tag = 1; tag <= kTags; tag++) send(*many_.send, tag);
    send(*beside_.send, 1);
    for (int i = 0; i < 20; i++) world_.progress(0);  // all of it is at the other side, in one batch
  }

  // Calls of NCCL's that poll, until one of them fails.
  void lack(int granted, int passes) {
    before = granted;
    refused = false;
    for (int i = 0; i < passes && !refused; i++) {
      armed = true;
      try {
        world_.progress(1);
      } catch (const std::bad_alloc&) {
      }
      armed = false;
    }
  }

  void expectAll() {
    expect(*beside_.recv, *to_, waits_, 1);
    for (int tag = 1; tag <= kTags && !many_.recv->failed(); tag++)
      expect(*many_.recv, *into_, receive(*many_.recv, *into_, tag), tag);
    // Expect: the way between the two is as it was.
    Connection next = world_.connect(0);
    exchange(world_, next, bytes_, 99, 5000, [&] { live(); });
  }

 private:
  static Request* receive(RecvCommImpl& comm, Buffer& into, int tag) {
    const ReceiveSpec spec{into.data(), into.size(), tag, into.handle(), nullptr};
    return comm.irecv(std::span(&spec, 1)).request;
  }

  void send(SendCommImpl& comm, int tag) {
    auto& from = *sent_.emplace_back(std::make_unique<Buffer>(comm, bytes_));
    fillPattern(from.data(), bytes_, static_cast<uint64_t>(tag));
    REQUIRE(comm.isend(from.data(), bytes_, tag, from.handle(), nullptr).request);
  }

  // It arrives as it was sent, or its comm has ended for the lack.
  void expect(RecvCommImpl& comm, Buffer& into, Request* request, int tag) {
    for (int i = 0; i < 5000 && request; i++) {
      const Tested tested = comm.testRequest(request, nullptr);
      if (!tested.ok) break;
      if (tested.done) {
        REQUIRE(firstMismatch(into.data(), bytes_, static_cast<uint64_t>(tag)) == bytes_);
        return;
      }
      live();
    }
    REQUIRE(comm.failed());
    INFO(comm.error().message());
    REQUIRE(comm.error().message().find("memory") != std::string::npos);
  }

  void live() {
    world_.pump();
    if (++passes_ % 64 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }

  const Silence silence_;
  World world_;
  const size_t bytes_;
  Connection many_, beside_;
  std::vector<std::unique_ptr<Buffer>> sent_;
  std::unique_ptr<Buffer> to_, into_;
  Request* waits_ = nullptr;
  int passes_ = 0;
};

WorldOptions overTcp() {
  WorldOptions options;
  options.config.socketIfname = "=lo";
  for (auto& transport : options.transports) transport = tcp::makeTransport(options.config);
  return options;
}

template <class Options>
void sweep(Options options, size_t bytes, int passes) {
  constexpr int kMost = 500;
  int n = 0;
  for (refused = true; refused && n < kMost; n++) {
    INFO("request " << n);
    Scene scene(options(), bytes);
    scene.lack(n, passes);
    scene.expectAll();
  }
  CHECK(n > 2);
  CHECK(n < kMost);
}

}  // namespace

TEST_CASE("a lack of memory loses nothing of what a poll found but the message that it was for") {
  sweep([] { return WorldOptions{}; }, 64, 1);
}

TEST_CASE("a lack of memory while a connection over tcp is read loses nothing of what was read") {
  const size_t bytes = GENERATE(64, 3'000, 50'000);
  sweep(overTcp, bytes, 50);
}
