// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <array>
#include <thread>

#include "tests/system/driver/process_state.h"
#include "tests/system/driver/program.h"
#include "tests/system/driver/traffic.h"

// Closing in every order that NCCL can produce: null, half-open, never connected, with requests outstanding,
// one side long before the other, memory freed before the comm, and nothing closed at all. Afterwards a fresh
// connection works.
namespace weft::system {
namespace {

constexpr size_t kSlot = size_t{256} << 10;
constexpr int kTag = 2;

void proveAlive(Run& run, End& end) {
  end.sync();
  const Comm comm = connectOneWay(run, end);
  sendChecked(run, comm, end.receives(), 20000, 99);
  end.sync();
}

void nullComms(Run& run, End& end) {
  run.success(end.net().closeSend(nullptr), Call::closeSend);
  run.success(end.net().closeRecv(nullptr), Call::closeRecv);
  run.success(end.net().closeListen(nullptr), Call::closeListen);
  run.count("closes of null", 3);
  proveAlive(run, end);
}

// Comm sharing leaves listeners that nobody ever connects to.
void neverConnected(Run& run, End& end) {
  std::vector<netdriver::Listener> listeners;
  for (int i = 0; i < 20; ++i) listeners.push_back(run.need(netdriver::listen(end.context(), end.device())));
  for (auto& listener : listeners) {
    void* raw = nullptr;
    if (run.failures() == 0) run.success(end.net().accept(listener.comm.raw(), &raw), Call::accept);
    run.expect(raw == nullptr, "accept found a connection that nobody made");
    run.success(listener.comm.close(), Call::closeListen);
    run.count("listeners");
  }
  proveAlive(run, end);
}

// A connection that NCCL stops polling, on either side; nothing of it is ever closed.
void halfOpen(Run& run, End& end) {
  for (int polls : {0, 1, 5, 200}) {
    netdriver::Listener listener;
    if (end.receives()) listener = run.need(netdriver::listen(end.context(), end.device()));
    Handle handle = end.exchange(listener.handle);
    void* raw = nullptr;
    for (int i = 0; i < polls && raw == nullptr; ++i) {
      if (end.receives())
        run.success(end.net().accept(listener.comm.raw(), &raw), Call::accept);
      else
        run.success(end.net().connect(end.context().raw(), end.device(), handle.data(), &raw), Call::connect);
    }
    end.sync();
    // Whichever half came to be is closed; the listener goes with it.
    const Comm half(end.net(), end.receives() ? netdriver::Side::recv : netdriver::Side::send, raw);
    run.count("half-open connections");
  }
  proveAlive(run, end);
}

void closeWithRequests(Run& run, End& end, bool sendFirst) {
  Comm comm = connectOneWay(run, end);
  Memory memory = makeMemory(run, comm, 8 * kSlot);
  for (size_t i = 0; i < 8; ++i) {
    std::byte* data = memory.data() + i * kSlot;
    void* request = nullptr;
    // Sends may be turned away: nobody receives them.
    if (end.receives())
      end.net().irecv(comm.raw(), oneReceive(data, kSlot, kTag + 1, memory.mhandle()), &request);
    else
      end.net().isend(comm.raw(), {data, i % 2 == 0 ? size_t{100} : kSlot, kTag, memory.mhandle()}, &request);
    int done = 0;
    if (request != nullptr && i % 3 == 0) end.net().test(request, &done, nullptr);
    run.count(request != nullptr ? "requests outstanding" : "requests turned away");
  }
  end.sync();
  if (end.receives() == sendFirst) end.sync();  // the other side closes first
  // As NCCL: registration, memory, comm. On abort the memory is gone before the comm is.
  run.success(memory.registration.release(), Call::deregMr);
  memory.buffer = {};
  run.success(comm.close(), end.receives() ? Call::closeRecv : Call::closeSend);
  if (end.receives() != sendFirst) end.sync();
}

void outstanding(Run& run, End& end) {
  run.expectWarnings();
  closeWithRequests(run, end, true);
  closeWithRequests(run, end, false);
  proveAlive(run, end);
}

// A receive posted for what never comes, whose memory is given back and used for something else.
void withdrawnReceive(Run& run, End& end) {
  run.expectWarnings();
  Comm comm = connectOneWay(run, end);
  Memory memory = makeMemory(run, comm, kSlot);
  if (end.receives()) {
    postRecv(run, comm, oneReceive(memory.data(), kSlot, kTag, memory.mhandle()));
    run.success(memory.registration.release(), Call::deregMr);
    std::fill_n(memory.data(), kSlot, kUntouched);
    end.sync();
    end.sync();
    run.expect(isUntouched(memory.buffer.span()),
               "a message was written into memory that had been given back");
    run.count("receives withdrawn");
    return;
  }
  end.sync();
  fill(memory.buffer.span(), 1);
  void* request = nullptr;
  end.net().isend(comm.raw(), {memory.data(), kSlot, kTag, memory.mhandle()}, &request);
  for (int i = 0; request != nullptr && i < 1000; ++i) {
    int done = 0;
    if (end.net().test(request, &done, nullptr) != ncclSuccess || done != 0) break;
  }
  end.sync();
}

// A send that is done has been sent: that the sender closes and its process ends takes nothing back, whether
// the receive was posted already or comes later.
void closedAfterDone(Run& run, End& end, bool postedFirst) {
  constexpr size_t kMessages = 8;
  constexpr size_t kSize = 900;
  Comm comm = connectOneWay(run, end);
  const Memory memory = makeMemory(run, comm, kMessages * kSize);
  const auto data = [&](size_t i) { return memory.data() + i * kSize; };
  if (!end.receives()) {
    if (postedFirst) end.sync();
    for (size_t i = 0; i < kMessages; ++i) {
      fill({data(i), kSize}, i);
      wait(run, comm, postSend(run, comm, {data(i), kSize, kTag, memory.mhandle()}));
    }
    return;
  }
  std::array<void*, kMessages> requests{};
  const auto post = [&](size_t i) {
    requests[i] = postRecv(run, comm, oneReceive(data(i), kSize, kTag, memory.mhandle()));
  };
  for (size_t i = 0; postedFirst && i < kMessages; ++i) post(i);
  if (postedFirst) end.sync();
  // Busy with something else until the sender is long gone.
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  for (size_t i = 0; i < kMessages; ++i) {
    if (!postedFirst) post(i);
    run.expect(wait(run, comm, requests[i])[0] == kSize,
               "message " + std::to_string(i) + " has another size");
    run.expect(firstDifference({data(i), kSize}, i) < 0, "message " + std::to_string(i) + " is wrong");
    run.count("messages");
  }
}

void closedAfterDonePosted(Run& run, End& end) {
  closedAfterDone(run, end, true);
}
void closedAfterDoneUnposted(Run& run, End& end) {
  closedAfterDone(run, end, false);
}

// One side is gone for long when the other closes.
void oneSideFirst(Run& run, End& end) {
  for (const bool receiverFirst : {true, false}) {
    Comm comm = connectOneWay(run, end);
    sendChecked(run, comm, end.receives(), 1000, 4);
    end.sync();
    if (end.receives() == receiverFirst) run.success(comm.close(), Call::closeSend);
    end.sync();
    run.success(comm.close(), Call::closeRecv);
    run.count("closes");
  }
  proveAlive(run, end);
}

// The accepted comm does not depend on its listener.
void listenerFirst(Run& run, End& end) {
  netdriver::Listener listener;
  if (end.receives()) listener = run.need(netdriver::listen(end.context(), end.device()));
  Handle handle = end.exchange(listener.handle);
  const Comm comm =
      end.receives() ? finishAccept(run, listener.comm) : finishConnect(run, end, end.context(), &handle);
  run.success(listener.comm.close(), Call::closeListen);
  end.sync();
  sendChecked(run, comm, end.receives(), 100000, 6);
  end.sync();
}

// On abort NCCL closes nothing and finalizes the context, the only place where a table from v11 on can
// reclaim.
void abandoned(Run& run, End& end) {
  run.expectWarnings();
  const size_t before = descriptors().size();
  for (int i = 0; i < 3; ++i) {
    Context context = run.need(Context::create(end.net(), 5));
    netdriver::Listener listener;
    if (end.receives()) listener = run.need(netdriver::listen(context, end.device()));
    Handle handle = end.exchange(listener.handle);
    Comm comm = end.receives() ? finishAccept(run, listener.comm) : finishConnect(run, end, context, &handle);
    auto buffer = run.need(netdriver::HostBuffer::create(kSlot));
    auto registration = run.need(Registration::create(comm, buffer.span()));
    void* request = nullptr;
    if (end.receives())
      end.net().irecv(comm.raw(), oneReceive(buffer.data(), kSlot, 1, registration.mhandle()), &request);
    end.sync();
    // Nobody refers to them from here on, and nobody closes them.
    listener.comm.abandon();
    comm.abandon();
    registration.abandon();
    context = run.need(Context::create(end.net(), 6));  // finalizes the first
    end.sync();
    run.count("contexts with everything left open");
  }
  if (end.peer() != nullptr)
    run.expect(descriptors().size() <= before + 8, "descriptors grew from " + std::to_string(before) +
                                                       " to " + std::to_string(descriptors().size()));
  proveAlive(run, end);
}

constexpr Case kCases[] = {
    {.name = "null", .pair = &nullComms},
    {.name = "never-connected", .pair = &neverConnected},
    {.name = "half-open", .pair = &halfOpen},
    {.name = "outstanding", .pair = &outstanding},
    {.name = "withdrawn-receive", .pair = &withdrawnReceive},
    {.name = "closed-after-posted", .pair = &closedAfterDonePosted},
    {.name = "closed-before-posted", .pair = &closedAfterDoneUnposted},
    {.name = "one-side-first", .pair = &oneSideFirst},
    {.name = "listener-first", .pair = &listenerFirst},
    {.name = "abandoned", .pair = &abandoned, .minAbi = 11},
};

}  // namespace
}  // namespace weft::system

int main(int argc, char** argv) {
  return weft::system::runProgram(argc, argv, weft::system::kCases);
}
