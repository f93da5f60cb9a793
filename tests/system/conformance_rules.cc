// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstring>
#include <functional>
#include <set>
#include <thread>
#include <vector>

#include "tests/support/patience.h"
#include "tests/system/driver/program.h"
#include "tests/system/driver/traffic.h"
#include "tools/netdriver/log_sink.h"
#include "tools/netdriver/profiler_sink.h"

// The smaller rules of the calling contract, one a case: properties, null arguments, the completion hint,
// sends larger than their receive, slow receivers, flushes, profiler events.
namespace weft::system {
namespace {

constexpr int kTag = 12;
constexpr size_t kSlot = size_t{64} << 10;

void checkProperties(Run& run, const netdriver::Properties& p) {
  run.expect(!p.name.empty() && p.name.size() < 255, "name is '" + p.name + "'");
  run.expect((p.ptrSupport & NCCL_PTR_HOST) != 0, "host memory is not supported");
  run.expect(p.speedMbps > 0, "speed is " + std::to_string(p.speedMbps));
  run.expect(p.latencyUs >= 0 && p.latencyUs < 1e6F, "latency is " + std::to_string(p.latencyUs));
  run.expect(p.maxComms > 0, "maxComms is " + std::to_string(p.maxComms));
  run.expect(p.maxRecvs >= 1 && p.maxRecvs <= netdriver::kMaxGroup,
             "maxRecvs is " + std::to_string(p.maxRecvs));
  run.expect(p.netDeviceType == NCCL_NET_DEVICE_HOST, "device type is " + std::to_string(p.netDeviceType));
  run.expect(p.maxP2pBytes > 0 && p.maxP2pBytes <= uint64_t{NCCL_MAX_NET_SIZE_BYTES},
             "maxP2pBytes is out of range");
  run.expect(p.maxCollBytes > 0 && p.maxCollBytes <= uint64_t{NCCL_MAX_NET_SIZE_BYTES},
             "maxCollBytes is out of range");
  run.expect(p.virtualMembers >= 1, "a device has " + std::to_string(p.virtualMembers) + " members");
}

// NCCL passes the struct uninitialised: whatever was in it before, the result is the same.
void properties(Run& run, End& end) {
  int devices = 0;
  run.success(end.net().devices(&devices), Call::devices);
  run.require(devices > 0 && devices < 128, std::to_string(devices) + " devices");
  std::set<std::string> names;
  for (int d = 0; d < devices; ++d) {
    netdriver::Properties a;
    netdriver::Properties b;
    run.success(end.net().getProperties(d, &a, 0xa5), Call::getProperties);
    run.success(end.net().getProperties(d, &b, 0x5a), Call::getProperties);
    run.expect(a == b, "a property of device " + std::to_string(d) + " is not set");
    run.expect(names.insert(a.name).second, "two devices are named " + a.name);
    checkProperties(run, a);
    run.count("devices");
  }
}

// NCCL's bootstrap passes neither sizes nor profiler handles.
void nullArguments(Run& run, End& end) {
  const Comm comm = connectOneWay(run, end);
  const Memory memory = makeMemory(run, comm, kSlot);
  for (uint64_t i = 0; i < 50; ++i) {
    const size_t size = i * 37;
    void* request = nullptr;
    if (end.receives()) {
      RecvArgs args = oneReceive(memory.data(), kSlot, kTag, memory.mhandle());
      args.nullPhandles = true;
      request = postRecv(run, comm, args);
    } else {
      fill({memory.data(), size}, i);
      request = postSend(run, comm, {memory.data(), size, kTag, memory.mhandle()});
    }
    const ncclResult_t result = waitForResult(run, comm, request, run.settings().timeout);
    run.require(result == ncclSuccess, netdriver::resultName(result));
    if (end.receives()) run.expect(firstDifference({memory.data(), size}, i) < 0, "wrong data");
    run.count("messages");
  }
}

// The receives of the case below: two slots, and each request until it is done.
// Read and clear as a GPU does: another thread writes the data, in no order with this one but what the data
// itself says, which ThreadSanitizer would call a race.
[[gnu::noinline]] __attribute__((no_sanitize("thread"))) void peek(std::span<const std::byte> from,
                                                                   std::byte* to) {
  const volatile std::byte* data = from.data();
  for (size_t i = 0; i < from.size(); ++i) to[i] = data[i];
}

[[gnu::noinline]] __attribute__((no_sanitize("thread"))) void clear(std::span<std::byte> range) {
  volatile std::byte* data = range.data();
  for (size_t i = 0; i < range.size(); ++i) data[i] = std::byte{0};
}

class HintedReceiver {
 public:
  HintedReceiver(Run& run, const Comm& comm, const Memory& memory)
      : run_(run), comm_(comm), memory_(memory) {}

  void post(uint64_t message) {
    auto* const hint = reinterpret_cast<void*>(uintptr_t{NCCL_NET_OPTIONAL_RECV_COMPLETION});
    std::byte* data = slot(message);
    clear({data, kSlot});
    void*& request = requests_[message % 2];
    request = postRecv(run_, comm_, oneReceive(data, kSlot, kTag, memory_.mhandle()), hint);
    run_.require(request != hint, "irecv left the hint in place of a request");
  }

  void finish(uint64_t message, size_t size) {
    test(message, true);
    Deadline deadline(run_, "data after a completion that was optional");
    std::vector<std::byte> seen(size);
    for (peek({slot(message), size}, seen.data()); firstDifference(seen, message) >= 0;
         peek({slot(message), size}, seen.data())) {
      test(message + 1, false);  // as NCCL goes on with the next receive
      deadline.check();
    }
    run_.count("messages");
  }

 private:
  std::byte* slot(uint64_t message) const { return memory_.data() + message % 2 * kSlot; }

  void test(uint64_t message, bool untilDone) {
    void*& request = requests_[message % 2];
    if (request == nullptr) return;
    if (untilDone) {
      wait(run_, comm_, request);
      request = nullptr;
    } else if (testOnce(run_, comm_, request)) {
      request = nullptr;
    }
  }

  Run& run_;
  const Comm& comm_;
  const Memory& memory_;
  std::array<void*, 2> requests_{};
};

// With NCCL's hint in the request slot the plugin may say done before the data is there, which the GPU then
// sees from the data itself, as this does. After the last message nobody calls the plugin, and the data still
// has to come.
void completionHint(Run& run, End& end) {
  const Comm comm = connectOneWay(run, end);
  const Memory memory = makeMemory(run, comm, 2 * kSlot);
  HintedReceiver receiver(run, comm, memory);
  const auto messages = static_cast<uint64_t>(run.scaled(200, 5000));
  const auto sizeOf = [](uint64_t i) { return 64 + (i * 104) % (kSlot - 64); };
  if (end.receives()) receiver.post(0);
  for (uint64_t i = 0; i < messages; ++i) {
    if (end.receives()) {
      if (i + 1 < messages) receiver.post(i + 1);
      receiver.finish(i, sizeOf(i));
    } else {
      fill({memory.data(), sizeOf(i)}, i);
      wait(run, comm, postSend(run, comm, {memory.data(), sizeOf(i), kTag, memory.mhandle()}));
    }
    end.exchange(char{});
  }
}

// The first error of a comm, from posting or from testing. The sender of a small message may be done with it
// before the receiver has seen how large it is: then a later send fails.
ncclResult_t firstError(Run& run, const Comm& comm, const std::function<ncclResult_t(void**)>& post) {
  Deadline deadline(run, "an error", Milliseconds(10000) * test::patience());
  void* request = nullptr;
  while (true) {
    int done = 0;
    const ncclResult_t result =
        request == nullptr ? post(&request) : comm.net().test(request, &done, nullptr);
    if (result != ncclSuccess) return result;
    if (done != 0) request = nullptr;
    deadline.check();
  }
}

// Fails on both sides, and not a byte lands outside the receive.
void tooLarge(Run& run, End& end) {
  run.expectWarnings();
  for (const size_t capacity : {size_t{0}, size_t{100}, size_t{5000}, kSlot}) {
    const size_t excess = capacity < 5000 ? 1 : 3 * kSlot;
    const Comm comm = connectOneWay(run, end);
    const Memory memory = makeMemory(run, comm, 16 * kSlot);
    std::fill_n(memory.data(), 16 * kSlot, kUntouched);
    std::byte* data = memory.data() + kSlot;
    if (!end.receives()) fill(memory.buffer.span(), capacity);
    firstError(run, comm, [&](void** request) {
      *request = nullptr;
      if (end.receives())
        return end.net().irecv(comm.raw(), oneReceive(data, capacity, kTag, memory.mhandle()), request);
      return end.net().isend(comm.raw(), {data, capacity + excess, kTag, memory.mhandle()}, request);
    });
    end.sync();
    if (end.receives()) run.expect(isUntouched({data + capacity, 8 * kSlot}), "wrote behind the receive");
    if (end.receives()) run.expect(isUntouched({memory.data(), kSlot}), "wrote before the receive");
    run.count("oversized sends noticed");
  }
}

// A receiver that does not come: sends wait or are turned away, nothing fails, everything arrives.
void slowReceiver(Run& run, End& end) {
  constexpr size_t kMessages = 400;
  constexpr size_t kWindow = 32;
  constexpr size_t kSize = 6000;
  const Comm comm = connectOneWay(run, end);
  const Memory memory = makeMemory(run, comm, kWindow * kSlot);
  if (end.receives()) {
    for (size_t i = 0; i < kMessages; ++i) {
      if (i % 100 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(run.scaled(200, 2000)));
      void* request = postRecv(run, comm, oneReceive(memory.data(), kSlot, kTag, memory.mhandle()));
      wait(run, comm, request);
      run.expect(firstDifference({memory.data(), kSize + i}, i) < 0,
                 "message " + std::to_string(i) + " is wrong");
      run.count("messages");
    }
    return;
  }
  std::vector<void*> requests(kWindow);
  for (size_t i = 0; i < kMessages + kWindow; ++i) {
    void*& request = requests[i % kWindow];
    if (request != nullptr) wait(run, comm, std::exchange(request, nullptr));
    if (i >= kMessages) continue;
    std::byte* data = memory.data() + i % kWindow * kSlot;
    fill({data, kSize + i}, i);
    request = postSend(run, comm, {data, kSize + i, kTag, memory.mhandle()});
  }
}

// iflush gives a request or nothing; a request becomes done.
void flush(Run& run, End& end) {
  const Comm comm = connectOneWay(run, end);
  const Memory memory = makeMemory(run, comm, kSlot);
  for (uint64_t i = 0; i < 20; ++i) {
    fill({memory.data(), 1000}, i);
    if (!end.receives()) {
      wait(run, comm, postSend(run, comm, {memory.data(), 1000, kTag, memory.mhandle()}));
      continue;
    }
    const RecvArgs args = oneReceive(memory.data(), kSlot, kTag, memory.mhandle());
    wait(run, comm, postRecv(run, comm, args));
    void* request = nullptr;
    run.success(end.net().iflush(comm.raw(), args, &request), Call::iflush);
    if (request != nullptr) {
      run.success(waitForResult(run, comm, request, run.settings().timeout), Call::test);
      run.count("flush requests");
    }
    run.count("flushes");
  }
}

// Every send and receive that has a parent handle starts events and stops as many; those without one report
// nothing.
void profilerEvents(Run& run, End& end) {
  auto& sink = netdriver::ProfilerSink::instance();
  sink.reset();
  sink.enable(true);
  end.sync();
  const Comm comm = connectOneWay(run, end);
  const Memory memory = makeMemory(run, comm, kSlot);
  const uint64_t messages = 60;
  for (uint64_t i = 0; i < messages; ++i) {
    const size_t size = i * 1000;
    int parent = 0;
    void* phandle = i % 3 == 2 ? nullptr : &parent;
    if (end.receives()) {
      RecvArgs args = oneReceive(memory.data(), kSlot, kTag, memory.mhandle());
      args.phandles[0] = phandle;
      wait(run, comm, postRecv(run, comm, args));
    } else {
      wait(run, comm, postSend(run, comm, {memory.data(), size, kTag, memory.mhandle(), phandle}));
    }
  }
  end.sync();
  const uint64_t traced = messages * 2 / 3;
  run.expect(sink.violations() == 0,
             std::to_string(sink.violations()) + " events without a start or a parent");
  run.expect(sink.starts() >= traced,
             std::to_string(sink.starts()) + " starts for " + std::to_string(traced) + " messages");
  run.expect(sink.open() == 0, std::to_string(sink.open()) + " events were never stopped");
  if (end.receives()) run.count("starts", sink.starts());
  if (end.receives()) run.count("stops", sink.stops());
  end.sync();
  sink.enable(false);
}

// A profiler that did not ask for network events leaves the handle null; then there is nothing to stop.
void profilerAbsent(Run& run, End& end) {
  auto& sink = netdriver::ProfilerSink::instance();
  sink.reset();
  end.sync();
  const Comm comm = connectOneWay(run, end);
  const Memory memory = makeMemory(run, comm, kSlot);
  int parent = 0;
  for (int i = 0; i < 10; ++i) {
    RecvArgs args = oneReceive(memory.data(), kSlot, kTag, memory.mhandle());
    args.phandles[0] = &parent;
    void* request = end.receives()
                        ? postRecv(run, comm, args)
                        : postSend(run, comm, {memory.data(), 100, kTag, memory.mhandle(), &parent});
    wait(run, comm, request);
    run.count("messages");
  }
  run.expect(sink.violations() == 0,
             std::to_string(sink.violations()) + " events of handles never given out");
  end.sync();
}

constexpr Case kCases[] = {
    {.name = "properties", .pair = &properties},
    {.name = "null-arguments", .pair = &nullArguments},
    {.name = "completion-hint", .pair = &completionHint},
    {.name = "too-large", .pair = &tooLarge},
    {.name = "slow-receiver", .pair = &slowReceiver},
    {.name = "flush", .pair = &flush},
    {.name = "profiler-events", .pair = &profilerEvents, .minAbi = 10},
    {.name = "profiler-absent", .pair = &profilerAbsent, .minAbi = 10},
};

}  // namespace
}  // namespace weft::system

int main(int argc, char** argv) {
  return weft::system::runProgram(argc, argv, weft::system::kCases);
}
