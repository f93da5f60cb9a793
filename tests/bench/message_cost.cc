// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <string_view>
#include <thread>

#include "tools/netdriver/comm.h"
#include "tools/netdriver/library.h"

// usage: message-cost PLUGIN.so COUNT BYTES SLOT [merge]
//
// Sends COUNT messages from one end to the other, both on this thread, in contexts (and so engines) of their
// own, one message at a time: irecv of SLOT bytes, isend, and test of both until they are done, each with the
// record of a step as NCCL has it. Prints how often NCCL would have called isend again, how many tests found
// nothing, and the processor time of the process in nanoseconds. BYTES 0 measures COUNT tests that find
// nothing; with "merge" the cards form one device. For tests/bench/message-cost, which counts instructions.
using namespace weft;
using namespace weft::netdriver;

namespace {

constexpr int kTag = 7;
constexpr uint64_t kWarmUp = 200;
constexpr Milliseconds kConnectTimeout{120000};

template <class T>
T must(Result<T> result) {
  if (result) return result.take();
  std::fprintf(stderr, "message-cost: %s\n", result.error().message().c_str());
  std::exit(1);
}

void must(ncclResult_t result, const char* call) {
  if (result == ncclSuccess) return;
  std::fprintf(stderr, "message-cost: %s returned %d\n", call, static_cast<int>(result));
  std::exit(1);
}

// Of all threads of the process, in nanoseconds.
int64_t processorTime() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// A context is where a plugin finds its devices.
int mergedDevice(Net& net) {
  const Context context = must(Context::create(net, 0));
  return must(mergeDevices(net));
}

class Pair {
 public:
  Pair(Net& net, int device, size_t bytes, size_t slot)
      : net_(net),
        device_(device),
        near_(must(Context::create(net, 1))),
        far_(must(Context::create(net, 2))),
        bytes_(bytes) {
    connect();
    out_ = must(HostBuffer::create(bytes));
    in_ = must(HostBuffer::create(slot));
    std::memset(out_.data(), 1, out_.size());  // pages of its own, not the one of zeros
    std::memset(in_.data(), 2, in_.size());
    outMemory_ = must(Registration::create(send_, out_.span()));
    inMemory_ = must(Registration::create(recv_, in_.span()));
    receive_.data[0] = in_.data();
    receive_.sizes[0] = slot;
    receive_.tags[0] = kTag;
    receive_.mhandles[0] = inMemory_.mhandle();
    receive_.phandles[0] = &receiveStep_;
  }

  void message() {
    void* receiving = postReceive();
    void* sending = nullptr;
    const SendArgs args{out_.data(), bytes_, kTag, outMemory_.mhandle(), &sendStep_};
    while (sending == nullptr) {
      must(net_.isend(send_.raw(), args, &sending), "isend");
      if (sending != nullptr) break;
      turnedAway++;
      (void)finished(receiving);  // a clear-to-send line is written on the receiver's next pass
    }
    bool sent = false, received = false;
    while (!sent || !received) {
      if (!received) received = finished(receiving);
      if (!sent) sent = finished(sending);
    }
  }

  void emptyTests(uint64_t count) {
    void* receiving = postReceive();
    std::this_thread::sleep_for(Milliseconds(50));  // whoever else is inside the engine comes out
    for (int i = 0; i < 10; i++) (void)finished(receiving);
    for (uint64_t i = 0; i < count; i++) (void)finished(receiving);
  }

  uint64_t turnedAway = 0;
  uint64_t empty = 0;

 private:
  void connect() {
    Handle handle{};
    void* listening = nullptr;
    must(net_.listen(far_.raw(), device_, handle.data(), &listening), "listen");
    const Comm listener(net_, Side::listen, listening);
    void* sending = nullptr;
    void* receiving = nullptr;
    const auto limit = std::chrono::steady_clock::now() + kConnectTimeout;
    while (sending == nullptr || receiving == nullptr) {
      if (sending == nullptr) must(net_.connect(near_.raw(), device_, handle.data(), &sending), "connect");
      if (receiving == nullptr) must(net_.accept(listening, &receiving), "accept");
      if (std::chrono::steady_clock::now() > limit) must(ncclSystemError, "connecting in time");
    }
    send_ = Comm(net_, Side::send, sending);
    recv_ = Comm(net_, Side::recv, receiving);
  }

  void* postReceive() {
    void* receiving = nullptr;
    while (receiving == nullptr) must(net_.irecv(recv_.raw(), receive_, &receiving), "irecv");
    return receiving;
  }

  bool finished(void* request) {
    int done = 0;
    std::array<int, kMaxGroup> sizes{};
    must(net_.test(request, &done, sizes.data()), "test");
    empty += done == 0;
    return done != 0;
  }

  Net& net_;
  const int device_;
  Context near_, far_;
  const size_t bytes_;
  Comm send_, recv_;
  HostBuffer out_, in_;
  Registration outMemory_, inMemory_;
  RecvArgs receive_;
  StepRecord sendStep_, receiveStep_;
};

}  // namespace

// What callgrind collects: connecting and warming up take as long as they take.
extern "C" [[gnu::noinline]] void measured(Pair& pair, uint64_t count, bool empty) {
  if (empty) return pair.emptyTests(count);
  for (uint64_t i = 0; i < count; i++) pair.message();
}

int main(int argc, char** argv) {
  const bool merge = argc == 6 && std::string_view(argv[5]) == "merge";
  if (argc != 5 && !merge) {
    std::fprintf(stderr, "usage: message-cost PLUGIN.so COUNT BYTES SLOT [merge]\n");
    return 2;
  }
  const uint64_t count = std::strtoull(argv[2], nullptr, 10);
  const size_t bytes = std::strtoull(argv[3], nullptr, 10);
  const size_t slot = std::strtoull(argv[4], nullptr, 10);
  if (slot < std::max<size_t>(bytes, 1)) {
    std::fprintf(stderr, "message-cost: SLOT is smaller than BYTES, or nothing\n");
    return 2;
  }
  const auto library = must(Library::open(argv[1]));
  Net& net = library->net();
  Pair pair(net, merge ? mergedDevice(net) : 0, std::max<size_t>(bytes, 1), slot);
  for (uint64_t i = 0; i < kWarmUp; i++) pair.message();
  pair.turnedAway = pair.empty = 0;
  const int64_t before = processorTime();
  measured(pair, count, bytes == 0);
  const int64_t spent = processorTime() - before;
  std::printf("%llu %llu %lld\n", static_cast<unsigned long long>(pair.turnedAway),
              static_cast<unsigned long long>(pair.empty), static_cast<long long>(spent));
  return 0;
}
