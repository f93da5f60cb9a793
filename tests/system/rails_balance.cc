// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <dlfcn.h>
#include <numeric>
#include <vector>

#include "tests/system/driver/program.h"
#include "tests/system/driver/traffic.h"

// Messages that one card alone would be too slow for: each card of the device carries its share of the bytes,
// the same when all are equally fast, less when one is slower. On the software EFA device (tests/softefa),
// whose cards count what they received and can be told how fast they are, so that they and not this machine's
// processors are the bottleneck. The device reads its settings once a process: one case each.
namespace weft::system {
namespace {

constexpr size_t kBytes = size_t{16} << 20;
constexpr int kWarmUp = 5;
constexpr int kMessages = 50;

// What the device's library has besides the verbs API (softefa.h). libfabric loaded it for itself alone.
class Counters {
 public:
  explicit Counters(Run& run) : library_(::dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD)) {
    run.require(library_ != nullptr, "libibverbs.so.1 is not loaded");
    opened_ = reinterpret_cast<Opened*>(::dlsym(library_, "softefa_opened"));
    counter_ = reinterpret_cast<Counter*>(::dlsym(library_, "softefa_counter"));
    run.require(opened_ != nullptr && counter_ != nullptr, "these are not software EFA cards");
  }
  ~Counters() { ::dlclose(library_); }
  Counters(const Counters&) = delete;
  Counters& operator=(const Counters&) = delete;

  // Of each card, in the order of their names.
  std::vector<uint64_t> bytesReceived() const {
    std::vector<uint64_t> all;
    for (void* card = nullptr; (card = opened_(static_cast<unsigned>(all.size()))) != nullptr;) {
      all.push_back(0);
      counter_(card, "bytesReceived", &all.back());
    }
    return all;
  }

 private:
  using Opened = void*(unsigned);
  using Counter = int(void*, const char*, uint64_t*);
  void* library_;
  Opened* opened_ = nullptr;
  Counter* counter_ = nullptr;
};

// So many messages, `atOnce` of them under way, all in the same memory: which bytes is not the question here.
void stream(Run& run, const Comm& comm, bool receives, const Memory& memory, int messages, int atOnce) {
  std::vector<void*> requests;
  for (int i = 0; i < messages + atOnce; i++) {
    if (i >= atOnce) wait(run, comm, requests[static_cast<size_t>(i - atOnce)]);
    if (i >= messages) continue;
    std::byte* data = memory.data() + static_cast<size_t>(i % atOnce) * kBytes;
    requests.push_back(receives ? postRecv(run, comm, oneReceive(data, kBytes, 1, memory.mhandle()))
                                : postSend(run, comm, {data, kBytes, 1, memory.mhandle()}));
  }
}

void expectShares(Run& run, const std::vector<uint64_t>& before, const std::vector<uint64_t>& after,
                  const std::vector<double>& rates) {
  run.require(before.size() == rates.size() && after.size() == rates.size(),
              std::to_string(after.size()) + " cards are open, not " + std::to_string(rates.size()));
  const double all = static_cast<double>(std::accumulate(after.begin(), after.end(), uint64_t{0}) -
                                         std::accumulate(before.begin(), before.end(), uint64_t{0}));
  const double rate = std::accumulate(rates.begin(), rates.end(), 0.0);
  run.expect(all > 0.99 * kMessages * kBytes, "the messages did not go over the cards");
  for (size_t i = 0; i < rates.size(); i++) {
    const double share = 100 * static_cast<double>(after[i] - before[i]) / (all * rates[i] / rate);
    run.count("% of its share card " + std::to_string(i), static_cast<uint64_t>(share));
    run.expect(share > 90 && share < 110, "card " + std::to_string(i) + " carried " + std::to_string(share) +
                                              " % of what its rate gives it");
  }
}

void balance(Run& run, End& end, const std::vector<double>& rates, int atOnce) {
  const Comm comm = connectOneWay(run, end);
  const Memory memory = makeMemory(run, comm, kBytes * static_cast<size_t>(atOnce));
  fill({memory.data(), kBytes}, 1);
  stream(run, comm, end.receives(), memory, kWarmUp, atOnce);
  end.sync();
  std::vector<uint64_t> before;
  if (end.receives()) before = Counters(run).bytesReceived();
  end.sync();
  stream(run, comm, end.receives(), memory, kMessages, atOnce);
  end.sync();
  if (end.receives()) expectShares(run, before, Counters(run).bytesReceived(), rates);
  run.count("messages", kMessages);
}

void equal(Run& run, End& end) {
  balance(run, end, {1, 1, 1, 1}, 2);
}
void oneHalfAsFast(Run& run, End& end) {
  balance(run, end, {1, 0.5, 1, 1}, 2);
}
void oneAtATime(Run& run, End& end) {
  balance(run, end, {1, 1, 0.5, 1}, 1);
}

constexpr Case kCases[] = {
    {.name = "equal", .pair = &equal, .processesOnly = true, .environment = "SOFTEFA_FAULTS=rate=80"},
    {.name = "one-half-as-fast",
     .pair = &oneHalfAsFast,
     .processesOnly = true,
     .environment = "SOFTEFA_FAULTS=rate=40 nic1.rate=20"},
    {.name = "one-at-a-time",
     .pair = &oneAtATime,
     .processesOnly = true,
     .environment = "SOFTEFA_FAULTS=rate=40 nic2.rate=20"},
};

}  // namespace
}  // namespace weft::system

int main(int argc, char** argv) {
  return weft::system::runProgram(argc, argv, weft::system::kCases);
}
