// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/system/driver/program.h"
#include "tests/system/driver/traffic.h"

// Every size of message at every alignment, alone and many at once, sends shorter than their receives: the
// data, the reported size, and not a byte outside.
namespace weft::system {
namespace {

constexpr size_t kGuard = 4096;
constexpr int kTag = 7;
constexpr size_t kInFlight = 32;  // NCCL_NET_MAX_REQUESTS

struct Place {
  size_t size;
  size_t sendOffset;
  size_t recvOffset;
  size_t slack;  // the receive is larger by this
};

std::vector<Place> places(bool full) {
  std::vector<size_t> sizes = {0, 1, 2, 3, 4, 7, 8, 63, 64, 65, 127, 128, 129, 1000};
  for (size_t power = 4096; power <= (size_t{1} << 20); power *= 2)
    sizes.insert(sizes.end(), {power - 1, power, power + 1});
  sizes.push_back((size_t{4} << 20) + 3);
  if (full) sizes.insert(sizes.end(), {(size_t{16} << 20) - 5, size_t{64} << 20});
  const std::vector<size_t> offsets =
      full ? std::vector<size_t>{0, 1, 3, 64, 129, 4095} : std::vector<size_t>{0, 1, 129};
  std::vector<Place> all;
  for (const size_t size : sizes)
    for (size_t i = 0; i < offsets.size(); ++i)
      all.push_back({size, offsets[i], offsets[(i + 1) % offsets.size()], i % 2 == 0 ? 0 : 1 + size / 3});
  // The largest once in the first tier too.
  if (!full) all.push_back({size_t{64} << 20, 1, 3, 0});
  return all;
}

void receiveAt(Run& run, const Comm& comm, const Memory& memory, const Place& p, uint64_t seed) {
  std::byte* data = memory.data() + kGuard + p.recvOffset;
  const size_t capacity = p.size + p.slack;
  std::fill(data - kGuard, data + capacity + kGuard, kUntouched);
  const Sizes sizes =
      wait(run, comm, postRecv(run, comm, oneReceive(data, capacity, kTag, memory.mhandle())));
  const std::string what = std::to_string(p.size) + " bytes at offset " + std::to_string(p.recvOffset);
  run.expect(static_cast<size_t>(sizes[0]) == p.size, what + ": size " + std::to_string(sizes[0]));
  const int64_t at = firstDifference({data, p.size}, seed);
  run.expect(at < 0, what + ": wrong from byte " + std::to_string(at));
  run.expect(isUntouched({data - kGuard, kGuard}), what + ": wrote before the receive");
  run.expect(isUntouched({data + p.size, p.slack + kGuard}), what + ": wrote behind the message");
  run.count("messages");
  run.count("bytes", p.size);
}

void sizes(Run& run, End& end) {
  const Comm comm = connectOneWay(run, end);
  const Memory memory = makeMemory(run, comm, (size_t{96} << 20) + 4 * kGuard);
  uint64_t seed = 0;
  for (const Place& p : places(run.full())) {
    ++seed;
    if (end.receives()) {
      receiveAt(run, comm, memory, p, seed);
      continue;
    }
    std::byte* data = memory.data() + p.sendOffset;
    fill({data, p.size}, seed);
    wait(run, comm, postSend(run, comm, {data, p.size, kTag, memory.mhandle()}));
  }
}

// One side's part of many messages at once: post all, then test them all, oldest first.
class Burst {
 public:
  Burst(Run& run, End& end, const Comm& comm, const Memory& memory)
      : run_(run), end_(end), comm_(comm), memory_(memory) {}

  void post(size_t slot, size_t size, uint64_t seed) {
    std::byte* data = memory_.data() + slot * kSlot;
    sizes_.push_back(size);
    seeds_.push_back(seed);
    if (end_.receives()) {
      requests_.push_back(postRecv(run_, comm_, oneReceive(data, kSlot, kTag, memory_.mhandle())));
      return;
    }
    fill({data, size}, seed);
    requests_.push_back(postSend(run_, comm_, {data, size, kTag, memory_.mhandle()}));
  }

  void finish() {
    for (size_t slot = 0; slot < requests_.size(); ++slot) {
      const Sizes sizes = wait(run_, comm_, requests_[slot]);
      if (end_.receives()) verify(slot, sizes[0]);
    }
  }

  static constexpr size_t kSlot = size_t{256} << 10;

 private:
  void verify(size_t slot, int size) {
    run_.expect(static_cast<size_t>(size) == sizes_[slot],
                "message " + std::to_string(slot) + " has size " + std::to_string(size));
    const int64_t at = firstDifference({memory_.data() + slot * kSlot, sizes_[slot]}, seeds_[slot]);
    run_.expect(at < 0, "message " + std::to_string(slot) + ": wrong from byte " + std::to_string(at));
    run_.count("messages");
  }

  Run& run_;
  End& end_;
  const Comm& comm_;
  const Memory& memory_;
  std::vector<void*> requests_;
  std::vector<size_t> sizes_;
  std::vector<uint64_t> seeds_;
};

// Full pipes, with one side first, the other side first, or both at once.
void inFlight(Run& run, End& end) {
  const Comm comm = connectOneWay(run, end);
  const Memory memory = makeMemory(run, comm, kInFlight * Burst::kSlot);
  Random random(11);
  const int rounds = run.scaled(12, 200);
  for (int round = 0; round < rounds; ++round) {
    Burst burst(run, end, comm, memory);
    const bool receiversFirst = round % 3 == 0;
    if (receiversFirst && !end.receives()) end.sync();
    for (size_t slot = 0; slot < kInFlight; ++slot) {
      const uint64_t seed = random.next();
      const size_t limit = random.below(4) == 0 ? Burst::kSlot : 9000;
      burst.post(slot, random.below(limit + 1), seed);
    }
    if (receiversFirst && end.receives()) end.sync();
    burst.finish();
    run.count("rounds of 32");
  }
}

// The window of NCCL's proxy: a new message as soon as the oldest is done, for a long time.
void stream(Run& run, End& end) {
  constexpr size_t kWindow = 8;
  const Comm comm = connectOneWay(run, end);
  const Memory memory = makeMemory(run, comm, kWindow * Burst::kSlot);
  const int messages = run.scaled(2000, 100000);
  Random random(5);
  std::vector<void*> requests(kWindow);
  std::vector<size_t> sizes(kWindow);
  std::vector<uint64_t> seeds(kWindow);
  for (int i = 0; i < messages + static_cast<int>(kWindow); ++i) {
    const auto slot = static_cast<size_t>(i) % kWindow;
    std::byte* data = memory.data() + slot * Burst::kSlot;
    if (requests[slot] != nullptr) {
      const Sizes got = wait(run, comm, requests[slot]);
      requests[slot] = nullptr;
      if (end.receives()) {
        run.expect(static_cast<size_t>(got[0]) == sizes[slot], "size " + std::to_string(got[0]));
        run.expect(firstDifference({data, sizes[slot]}, seeds[slot]) < 0,
                   "message " + std::to_string(i) + " is wrong");
        run.count("messages");
      }
    }
    if (i >= messages) continue;
    sizes[slot] = random.below(random.below(8) == 0 ? 200000 : 5000);
    seeds[slot] = random.next();
    if (end.receives()) {
      requests[slot] = postRecv(run, comm, oneReceive(data, Burst::kSlot, kTag, memory.mhandle()));
    } else {
      fill({data, sizes[slot]}, seeds[slot]);
      requests[slot] = postSend(run, comm, {data, sizes[slot], kTag, memory.mhandle()});
    }
  }
}

constexpr Case kCases[] = {
    {.name = "sizes", .pair = &sizes},
    {.name = "in-flight", .pair = &inFlight},
    {.name = "stream", .pair = &stream},
};

}  // namespace
}  // namespace weft::system

int main(int argc, char** argv) {
  return weft::system::runProgram(argc, argv, weft::system::kCases);
}
