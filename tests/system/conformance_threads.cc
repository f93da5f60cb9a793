// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <atomic>
#include <thread>

#include "tests/system/driver/program.h"
#include "tests/system/driver/traffic.h"

// Several threads in one process, as with several GPUs a process: each with a context of its own, or all with
// one, and NCCL's split of a comm between the service thread (memory) and the progress thread (data).
namespace weft::system {
namespace {

constexpr size_t kThreads = 8;
constexpr size_t kSlot = size_t{64} << 10;

// Handles travel over the test's own connection, which one thread a side uses: connections are made in lock
// step, then handed to their threads.
struct Pairing {
  int device = 0;
  netdriver::Listener listener;
  Handle theirs{};
};

Pairing exchangeHandles(Run& run, End& end, const Context& context) {
  Pairing pairing;
  pairing.device = end.device();
  pairing.listener = run.need(netdriver::listen(context, end.device()));
  pairing.theirs = end.exchange(pairing.listener.handle);
  return pairing;
}

// The work of one thread: connect both ways, then messages in both directions at once.
void work(Run& run, const Context& context, Pairing pairing, int side, uint64_t thread) {
  const netdriver::Ends ends = run.need(netdriver::connectBoth(
      context, pairing.device, pairing.theirs, std::move(pairing.listener), run.settings().timeout));
  const Memory out = makeMemory(run, ends.send, kSlot);
  const Memory in = makeMemory(run, ends.recv, kSlot);
  const auto tag = static_cast<int>(thread);
  const auto messages = static_cast<uint64_t>(run.scaled(150, 3000));
  for (uint64_t i = 0; i < messages; ++i) {
    const size_t size = (i * 1237 + thread * 11) % kSlot;
    const uint64_t seed = thread * 1000003 + i * 2;
    fill({out.data(), size}, seed + static_cast<uint64_t>(side));
    void* receive = postRecv(run, ends.recv, oneReceive(in.data(), kSlot, tag, in.mhandle()));
    void* send = postSend(run, ends.send, {out.data(), size, tag, out.mhandle()});
    const Sizes sizes = wait(run, ends.recv, receive);
    wait(run, ends.send, send);
    run.expect(static_cast<size_t>(sizes[0]) == size, "size " + std::to_string(sizes[0]));
    run.expect(firstDifference({in.data(), size}, seed + static_cast<uint64_t>(1 - side)) < 0, "wrong data");
    run.count("messages");
  }
}

void guarded(Run& run, const std::function<void()>& body) {
  try {
    body();
  } catch (const CaseFailed&) {
    // Reported where it happened.
  } catch (const std::exception& e) {
    run.expect(false, e.what());
  }
}

void runThreads(Run& run, End& end, const std::vector<const Context*>& contexts) {
  std::vector<Pairing> pairings;
  for (const Context* context : contexts) pairings.push_back(exchangeHandles(run, end, *context));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < contexts.size(); ++i)
    threads.emplace_back(
        [&, i] { guarded(run, [&] { work(run, *contexts[i], std::move(pairings[i]), end.side(), i); }); });
  for (std::thread& thread : threads) thread.join();
  run.count("threads", threads.size());
  end.sync();
}

void ownContexts(Run& run, End& end) {
  std::vector<Context> owned;
  for (size_t i = 0; i < kThreads; ++i) owned.push_back(run.need(Context::create(end.net(), i)));
  std::vector<const Context*> contexts;
  for (const Context& context : owned) contexts.push_back(&context);
  runThreads(run, end, contexts);
}

void sharedContext(Run& run, End& end) {
  runThreads(run, end, std::vector<const Context*>(kThreads, &end.context()));
}

// The service thread: registers and gives back memory of a comm on which the progress thread moves data.
void service(Run& run, const Comm& comm, const std::atomic<bool>& stop) {
  auto buffer = run.need(netdriver::HostBuffer::create(size_t{1} << 20));
  for (size_t i = 0; !stop; ++i) {
    Registration registration = run.need(Registration::create(comm, buffer.span().subspan(i % 4096)));
    run.success(registration.release(), Call::deregMr);
    run.count("registrations");
    std::this_thread::yield();
  }
}

void serviceThread(Run& run, End& end) {
  const Comm comm = connectOneWay(run, end);
  const Memory memory = makeMemory(run, comm, kSlot);
  std::atomic<bool> stop{false};
  std::thread other([&] { guarded(run, [&] { service(run, comm, stop); }); });
  guarded(run, [&] {
    for (uint64_t i = 0; i < static_cast<uint64_t>(run.scaled(500, 20000)); ++i) {
      const size_t size = i * 331 % kSlot;
      if (!end.receives()) fill({memory.data(), size}, i);
      void* request = end.receives()
                          ? postRecv(run, comm, oneReceive(memory.data(), kSlot, 1, memory.mhandle()))
                          : postSend(run, comm, {memory.data(), size, 1, memory.mhandle()});
      wait(run, comm, request);
      if (end.receives()) run.expect(firstDifference({memory.data(), size}, i) < 0, "wrong data");
      run.count("messages");
    }
  });
  stop = true;
  other.join();
  end.sync();
}

// Connected by one thread, used by another, closed by a third: NCCL's service and progress threads.
void handOver(Run& run, End& end) {
  for (uint64_t i = 0; i < static_cast<uint64_t>(run.scaled(10, 100)); ++i) {
    Comm comm = connectOneWay(run, end);
    std::thread user(
        [&] { guarded(run, [&] { sendChecked(run, comm, end.receives(), 5000 + 100 * i, i); }); });
    user.join();
    end.sync();
    std::thread closer([&] { run.expect(comm.close() == ncclSuccess, "close failed"); });
    closer.join();
    run.count("comms handed over");
  }
}

constexpr Case kCases[] = {
    {.name = "own-contexts", .pair = &ownContexts},
    {.name = "shared-context", .pair = &sharedContext},
    {.name = "service-thread", .pair = &serviceThread},
    {.name = "hand-over", .pair = &handOver},
};

}  // namespace
}  // namespace weft::system

int main(int argc, char** argv) {
  return weft::system::runProgram(argc, argv, weft::system::kCases);
}
