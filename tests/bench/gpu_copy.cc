// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <functional>
#include <sched.h>
#include <thread>
#include <vector>

#include "src/mem/gpu/driver.h"
#include "tests/bench/companion.h"
#include "tests/support/gpu_in_use.h"
#include "tools/netdriver/comm.h"
#include "tools/netdriver/library.h"

// usage: gpu-copy PLUGIN.so [apart]
//
// A message from GPU memory to GPU memory, beside a plain copy of as many bytes (cuMemcpyDtoDAsync and a wait
// for its stream). Both ends are played by one thread of one process, so that a busy machine adds the same to
// both; with `apart`, by two processes, half of what there and back takes: then for memory that was allocated
// for sharing and for memory as cudaMalloc makes it, which a process cannot open of itself. A line for each
// size and kind: microseconds of the copy and of the message, their ratio and difference, once the least and
// once the medians of rounds in which the two take turns. WEFT_PROVIDER and WEFT_LOCAL_GPU are set to `local`
// and 1 unless they are set.
using namespace weft;
using namespace weft::netdriver;
using bench::Companion;
using bench::must;
using mem::gpu::Driver;

namespace {

using Time = std::chrono::steady_clock;

constexpr size_t kMostBytes = size_t{64} << 20;
constexpr size_t kSizes[] = {
    8, 4096, size_t{64} << 10, size_t{1} << 20, size_t{4} << 20, size_t{16} << 20, kMostBytes};
constexpr int kRounds = 25;
constexpr int kTag = 3;
constexpr Milliseconds kConnect{30'000};
constexpr unsigned kSeconds = 300;

void called(ncclResult_t result, Call call) {
  if (result != ncclSuccess) bench::die(std::string(callName(call)) + " returned " + resultName(result));
}

// The driver's own functions, for the plain copy.
struct Plain {
  Plain() {
    void* library = ::dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) bench::die("no CUDA driver");
    copy = reinterpret_cast<decltype(copy)>(::dlsym(library, "cuMemcpyDtoDAsync_v2"));
    wait = reinterpret_cast<decltype(wait)>(::dlsym(library, "cuStreamSynchronize"));
    void* made = nullptr;
    const auto make = reinterpret_cast<int (*)(void**, unsigned)>(::dlsym(library, "cuStreamCreate"));
    if (!copy || !wait || !make || make(&made, 1) != 0) bench::die("the CUDA driver lacks a function");
    stream = made;
  }
  void operator()(std::byte* to, const std::byte* from, size_t bytes) const {
    if (copy(reinterpret_cast<uintptr_t>(to), reinterpret_cast<uintptr_t>(from), bytes, stream) != 0 ||
        wait(stream) != 0)
      bench::die("a plain copy failed");
  }
  int (*copy)(unsigned long long, unsigned long long, size_t, void*) = nullptr;
  int (*wait)(void*) = nullptr;
  void* stream = nullptr;
};

// Carries the handle of a listener to the other process, and brings that one's.
Handle exchanged(const Companion& companion, const Handle& ours) {
  companion.put(std::as_bytes(std::span(ours)));
  const Bytes theirs = companion.get();
  Handle handle{};
  std::memcpy(handle.data(), theirs.data(), std::min(theirs.size(), sizeof handle));
  return handle;
}

// Two comms over one kind of memory, whose lower half is sent and whose upper half received into. Without a
// companion they are the two ends of one connection.
class Way {
 public:
  Way(Net& net, const Context& near, const Context& far, const Companion* companion, std::byte* memory)
      : net_(net), memory_(memory) {
    Listener listener = must(listen(far, 0));
    const Handle peer = companion ? exchanged(*companion, listener.handle) : listener.handle;
    ends_ = must(connectEnds(near, 0, &peer, std::move(listener), kConnect));
    called(net.regMrAs(NCCL_PTR_CUDA, ends_.send.raw(), memory, kMostBytes, &sending_), Call::regMr);
    called(net.regMrAs(NCCL_PTR_CUDA, ends_.recv.raw(), memory + kMostBytes, kMostBytes, &receiving_),
           Call::regMr);
  }
  ~Way() {
    (void)net_.deregMr(ends_.send.raw(), sending_);
    (void)net_.deregMr(ends_.recv.raw(), receiving_);
  }
  Way(const Way&) = delete;
  Way& operator=(const Way&) = delete;

  // From the one end to the other, that often.
  void cross(size_t bytes, int times) {
    for (int i = 0; i < times; i++) {
      void* receive = postReceive(bytes);
      void* send = postSend(bytes, receive);
      while (receive || send) {
        step(&receive);
        step(&send);
      }
    }
  }
  // There and back, or back and there, that often.
  void bounce(bool first, size_t bytes, int times) {
    for (int i = 0; i < times; i++) {
      void* receive = postReceive(bytes);
      if (first) finish(postSend(bytes));
      finish(receive);
      if (!first) finish(postSend(bytes));
    }
  }

 private:
  void* postReceive(size_t bytes) {
    RecvArgs args;
    args.data[0] = memory_ + kMostBytes;
    args.sizes[0] = bytes;
    args.tags[0] = kTag;
    args.mhandles[0] = receiving_;
    void* request = nullptr;
    while (!request) called(net_.irecv(ends_.recv.raw(), args, &request), Call::irecv);
    return request;
  }
  // `receive`: what else has to go on meanwhile, if anything.
  void* postSend(size_t bytes, void* receive = nullptr) {
    const SendArgs args{memory_, bytes, kTag, sending_, nullptr};
    void* request = nullptr;
    while (!request) {
      called(net_.isend(ends_.send.raw(), args, &request), Call::isend);
      if (!request && receive) step(&receive);
    }
    return request;
  }
  // Null when it is done.
  void step(void** request) const {
    int done = 0, sizes[kMaxGroup] = {};
    if (*request) called(net_.test(*request, &done, sizes), Call::test);
    if (done) *request = nullptr;
  }
  // Three or four threads want a processor here, those that play a GPU included.
  void finish(void* request) const {
    for (;; ::sched_yield()) {
      step(&request);
      if (!request) return;
    }
  }

  Net& net_;
  std::byte* const memory_;
  Ends ends_;
  void* sending_ = nullptr;
  void* receiving_ = nullptr;
};

double microseconds(const std::function<void()>& work, int times) {
  const auto start = Time::now();
  work();
  return std::chrono::duration<double, std::micro>(Time::now() - start).count() / times;
}

struct Pair {
  std::vector<double> copies, messages;
  void print(size_t bytes, const char* kind) {
    std::sort(copies.begin(), copies.end());
    std::sort(messages.begin(), messages.end());
    std::printf("%10zu %-11s", bytes, kind);
    for (const size_t at : {size_t{0}, copies.size() / 2})
      std::printf(" %9.1f %9.1f %6.2f %+9.1f", copies[at], messages[at], messages[at] / copies[at],
                  messages[at] - copies[at]);
    std::printf("\n");
    std::fflush(stdout);
  }
};

int timesFor(size_t bytes) {
  return bytes <= (64 << 10) ? 50 : bytes <= (4 << 20) ? 8 : 2;
}

double copyTime(std::byte* memory, size_t bytes, int times) {
  static const Plain copy;
  return microseconds(
      [&] {
        for (int i = 0; i < times; i++) copy(memory + kMostBytes, memory, bytes);
      },
      times);
}

// The first round maps the memory and does not count.
void together(Way& way, size_t bytes, std::byte* memory) {
  const int times = timesFor(bytes);
  Pair pair;
  for (int round = 0; round <= kRounds; round++) {
    const double copy = copyTime(memory, bytes, times);
    const double message = microseconds([&] { way.cross(bytes, times); }, times);
    if (round > 0) pair.copies.push_back(copy), pair.messages.push_back(message);
  }
  pair.print(bytes, "shared");
}

void apart(const Companion& companion, Way& way, size_t bytes, std::byte* memory, const char* kind) {
  const int times = timesFor(bytes);
  Pair pair;
  for (int round = 0; round <= kRounds; round++) {
    if (!companion.first()) {
      (void)companion.getText();
      way.bounce(false, bytes, times);
      continue;
    }
    const double copy = copyTime(memory, bytes, times);
    companion.putText("go");
    const double message = microseconds([&] { way.bounce(true, bytes, times); }, 2 * times);
    if (round > 0) pair.copies.push_back(copy), pair.messages.push_back(message);
  }
  if (companion.first()) pair.print(bytes, kind);
}

void printConditions(const Driver& driver) {
  double load[1] = {};
  (void)::getloadavg(load, 1);
  std::printf("# %u processors, load %.1f, %s, %d rounds; microseconds: the least, then the medians\n",
              std::thread::hardware_concurrency(), load[0],
              test::isSoftwareGpu() ? "software GPU (times are not a GPU's)" : driver.facts(0).name.c_str(),
              kRounds);
  std::printf("%10s %-11s %9s %9s %6s %9s %9s %9s %6s %9s\n", "bytes", "memory", "copy", "message", "ratio",
              "more", "copy", "message", "ratio", "more");
}

void run(const char* plugin, const Companion* companion) {
  const test::GpuInUse gpu;
  if (!gpu) bench::die(gpu.why());
  const auto driver = must(Driver::open({}, false));
  const auto shareable = must(driver->allocateShareable(0, 2 * kMostBytes));
  const auto piece = must(driver->allocate(0, 2 * kMostBytes));
  auto* ofCudaMalloc = static_cast<std::byte*>(piece->data());
  const std::vector<std::byte> content(2 * kMostBytes, std::byte{1});  // pages of their own
  must(driver->toGpu(0, shareable->data(), content.data(), content.size()));
  must(driver->toGpu(0, ofCudaMalloc, content.data(), content.size()));
  const auto library = must(Library::open(plugin));
  Net& net = library->net();
  const Context near = must(Context::create(net, 1)), far = must(Context::create(net, 2));
  if (!companion || companion->first()) printConditions(*driver);
  if (!companion) {
    Way way(net, near, far, nullptr, shareable->data());
    for (const size_t bytes : kSizes) together(way, bytes, shareable->data());
    return;
  }
  Way shared(net, near, near, companion, shareable->data());
  Way plain(net, near, near, companion, ofCudaMalloc);
  for (const size_t bytes : kSizes) {
    apart(*companion, shared, bytes, shareable->data(), "shared");
    apart(*companion, plain, bytes, shareable->data(), "cudaMalloc");
  }
  companion->putText("over");
  (void)companion->getText();
}

}  // namespace

int main(int argc, char** argv) {
  const bool apart = argc == 3 && std::strcmp(argv[2], "apart") == 0;
  if (argc != 2 && !apart) {
    std::fprintf(stderr, "usage: gpu-copy PLUGIN.so [apart]\n");
    return 2;
  }
  ::setenv("WEFT_PROVIDER", "local", 0);
  ::setenv("WEFT_LOCAL_GPU", "1", 0);
  if (!apart) {
    bench::watchdog(kSeconds);
    run(argv[1], nullptr);
    return 0;
  }
  const Companion companion = Companion::start();  // before this process calls CUDA
  bench::watchdog(kSeconds);
  run(argv[1], &companion);
}
