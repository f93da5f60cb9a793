// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "tests/bench/must.h"
#include "tools/netdriver/comm.h"
#include "tools/netdriver/library.h"

// usage: registration PLUGIN.so ENTRIES [WHAT]
//
// What registering memory costs while ENTRIES other ranges are registered, on a send and on a receive comm of
// one process: regMr of a range that is known and deregMr while others still have it; both for a range that
// nobody has. Prints nanoseconds a call, the median and the least of some batches; with WHAT, the first words
// of one of these lines, only how often that was called, all within countedCalls(). For
// tests/bench/registration.
using namespace weft;
using namespace weft::netdriver;

namespace {

using bench::die;
using bench::must;

using Time = std::chrono::steady_clock;

constexpr size_t kRangeBytes = 4096;
constexpr size_t kBatch = 64;
constexpr size_t kBatches = 200;
constexpr size_t kCountedBatches = 20;  // counts do not scatter
constexpr size_t kMostEntries = 100'000;
constexpr std::chrono::seconds kConnectTimeout{100};

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
    if (Time::now() > limit) die("not connected in 100 s");
  }
  return {Comm(net, Side::send, sending), Comm(net, Side::recv, receiving)};
}

using Calls = std::function<void()>;

// By this name callgrind is told what to count.
[[gnu::noinline]] void countedCalls(const Calls& calls) {
  calls();
}

// Nanoseconds a call of a batch.
class Timing {
 public:
  Timing(std::string what, const std::string& counted)
      : what_(std::move(what)), counted_(what_ == counted), silent_(!counted.empty()) {}
  void measure(const Calls& calls) {
    const auto start = Time::now();
    if (counted_) {
      countedCalls(calls);
    } else {
      calls();
    }
    batches_.push_back(std::chrono::duration<double, std::nano>(Time::now() - start).count() / kBatch);
  }
  void print() {
    if (counted_) std::printf("%zu\n", batches_.size() * kBatch);
    if (silent_) return;
    std::sort(batches_.begin(), batches_.end());
    std::printf("%s %.1f %.1f\n", what_.c_str(), batches_[batches_.size() / 2], batches_.front());
  }

 private:
  std::string what_;
  bool counted_;
  bool silent_;
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
void measure(const Comm& comm, std::byte* ranges, size_t step, const std::string& name,
             const std::string& counted) {
  Timing registering("regMr " + name, counted), deregistering("deregMr " + name, counted);
  std::vector<void*> handles(kBatch);
  for (size_t batch = 0; batch < (counted.empty() ? kBatches : kCountedBatches); batch++) {
    registering.measure([&] {
      for (size_t i = 0; i < kBatch; i++) handles[i] = add(comm, ranges + i * step);
    });
    deregistering.measure([&] {
      for (void* handle : handles) remove(comm, handle);
    });
  }
  registering.print();
  deregistering.print();
}

void measureBoth(const Comm& comm, std::byte* ranges, std::byte* known, const std::string& side,
                 const std::string& counted) {
  void* kept = add(comm, known);
  measure(comm, known, 0, "known " + side, counted);
  remove(comm, kept);
  measure(comm, ranges, 2 * kRangeBytes, "new " + side, counted);
}

}  // namespace

int main(int argc, char** argv) {
  const bool complete = argc == 3 || argc == 4;
  const size_t entries = complete ? std::strtoull(argv[2], nullptr, 10) : 0;
  if (!complete || entries < 1 || entries > kMostEntries) {
    std::fprintf(stderr, "usage: registration PLUGIN.so ENTRIES [WHAT]\n");
    return 2;
  }
  const std::string counted = argc == 4 ? argv[3] : "";
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
  measureBoth(pair.send, ranges, known, "send", counted);
  measureBoth(pair.recv, ranges, known, "receive", counted);
  for (void* handle : others) remove(pair.send, handle);
  return 0;
}
