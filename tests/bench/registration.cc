// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tools/netdriver/comm.h"
#include "tools/netdriver/library.h"

// usage: registration PLUGIN.so ENTRIES
//
// What registering memory costs while ENTRIES other ranges are registered, on a send and on a receive comm of
// one process: regMr of a range that is known and deregMr while others still have it; both for a range that
// nobody has. Prints nanoseconds a call, the median and the least of some batches. For
// tests/bench/registration.
using namespace weft;
using namespace weft::netdriver;

namespace {

using Time = std::chrono::steady_clock;

constexpr size_t kRangeBytes = 4096;
constexpr size_t kBatch = 64;
constexpr size_t kBatches = 200;
constexpr size_t kMostEntries = 100'000;
constexpr std::chrono::seconds kConnectTimeout{20};

[[noreturn]] void die(const std::string& why) {
  std::fprintf(stderr, "registration: %s\n", why.c_str());
  std::exit(1);
}

template <class T>
T must(Result<T> result) {
  if (!result) die(result.error().message());
  return result.take();
}

void must(ncclResult_t result, Call call) {
  if (result != ncclSuccess) die(std::string(callName(call)) + " returned " + resultName(result));
}

struct Pair {
  Comm send, recv;
};

Pair connect(Net& net, const Context& near, const Context& far) {
  Listener listener = must(listen(far, 0));
  void* sending = nullptr;
  void* receiving = nullptr;
  const auto limit = Time::now() + kConnectTimeout;
  while (sending == nullptr || receiving == nullptr) {
    if (sending == nullptr) must(net.connect(near.raw(), 0, listener.handle.data(), &sending), Call::connect);
    if (receiving == nullptr) must(net.accept(listener.comm.raw(), &receiving), Call::accept);
    if (Time::now() > limit) die("not connected in 20 s");
  }
  return {Comm(net, Side::send, sending), Comm(net, Side::recv, receiving)};
}

// Nanoseconds a call of a batch.
class Timing {
 public:
  template <class Calls>
  void measure(Calls calls) {
    const auto start = Time::now();
    calls();
    batches_.push_back(std::chrono::duration<double, std::nano>(Time::now() - start).count() / kBatch);
  }
  void print(const char* what) {
    std::sort(batches_.begin(), batches_.end());
    std::printf("%s %.1f %.1f\n", what, batches_[batches_.size() / 2], batches_.front());
  }

 private:
  std::vector<double> batches_;
};

void* add(const Comm& comm, std::byte* range) {
  void* handle = nullptr;
  must(comm.net().regMr(comm.raw(), range, kRangeBytes, &handle), Call::regMr);
  return handle;
}

void remove(const Comm& comm, void* handle) {
  must(comm.net().deregMr(comm.raw(), handle), Call::deregMr);
}

// `ranges`: kBatch ranges side by side, each at `step` from the one before; 0: the same one.
void measure(const Comm& comm, std::byte* ranges, size_t step, const char* name) {
  Timing registering, deregistering;
  std::vector<void*> handles(kBatch);
  for (size_t batch = 0; batch < kBatches; batch++) {
    registering.measure([&] {
      for (size_t i = 0; i < kBatch; i++) handles[i] = add(comm, ranges + i * step);
    });
    deregistering.measure([&] {
      for (void* handle : handles) remove(comm, handle);
    });
  }
  registering.print((std::string("regMr ") + name).c_str());
  deregistering.print((std::string("deregMr ") + name).c_str());
}

void measureBoth(const Comm& comm, std::byte* ranges, std::byte* known, const std::string& side) {
  void* kept = add(comm, known);
  measure(comm, known, 0, ("known " + side).c_str());
  remove(comm, kept);
  measure(comm, ranges, 2 * kRangeBytes, ("new " + side).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const size_t entries = argc == 3 ? std::strtoull(argv[2], nullptr, 10) : 0;
  if (argc != 3 || entries < 1 || entries > kMostEntries) {
    std::fprintf(stderr, "usage: registration PLUGIN.so ENTRIES\n");
    return 2;
  }
  const auto library = must(Library::open(argv[1]));
  Net& net = library->net();
  const Context near = must(Context::create(net, 1)), far = must(Context::create(net, 2));
  const Pair pair = connect(net, near, far);
  // Pages that are not neighbours, so that no range lies in another's.
  const HostBuffer memory = must(HostBuffer::create((entries + kBatch + 1) * 2 * kRangeBytes));
  std::vector<void*> others;
  for (size_t i = 0; i < entries; i++) others.push_back(add(pair.send, memory.data() + i * 2 * kRangeBytes));
  std::byte* ranges = memory.data() + entries * 2 * kRangeBytes;
  std::byte* known = ranges + kBatch * 2 * kRangeBytes;
  measureBoth(pair.send, ranges, known, "send");
  measureBoth(pair.recv, ranges, known, "receive");
  for (void* handle : others) remove(pair.send, handle);
  return 0;
}
