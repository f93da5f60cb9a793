// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <csignal>
#include <thread>
#include <unistd.h>

#include "src/base/process.h"
#include "tests/system/driver/flow.h"
#include "tests/system/driver/program.h"
#include "tests/system/driver/traffic.h"
#include "tools/netdriver/log_sink.h"

// Peers that are killed, with a transfer under way or with nothing to do, and peers that are stopped and go
// on. Side 1 is the victim and does as side 0 tells it until it is killed.
namespace weft::system {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Milliseconds kKilledLimit{1000};
constexpr int kTag = 4;

[[noreturn]] void waitToBeKilled(Run& run, Flow* flow) {
  Deadline deadline(run, "to be killed");
  while (true) {
    if (flow != nullptr && flow->step() != ncclSuccess) flow = nullptr;
    deadline.check();
  }
}

pid_t killPeer(Run& run, End& end) {
  const pid_t pid = end.peer()->pid();
  end.peer()->signal(SIGKILL);
  run.require(pid > 0, "no peer");
  return pid;
}

void expectWithin(Run& run, Clock::time_point begin, Milliseconds limit) {
  const auto ms = std::chrono::duration_cast<Milliseconds>(Clock::now() - begin);
  run.expect(ms <= limit, "the error took " + std::to_string(ms.count()) + " ms");
  run.count("ms until the error", static_cast<uint64_t>(ms.count()));
}

// In the middle of a transfer in that direction.
void killedInFlight(Run& run, End& end, bool victimSends) {
  run.expectWarnings();
  netdriver::Ends ends = connectBothWays(run, end);
  const bool receives = end.receives() == victimSends;
  Flow flow(run, receives ? ends.recv : ends.send, receives);
  end.sync();
  if (!end.receives()) waitToBeKilled(run, &flow);
  Deadline warmUp(run, "the first messages");
  for (; flow.done() < 20; warmUp.check()) run.success(flow.step(), Call::test);
  run.count("messages before the kill", flow.done());
  const pid_t pid = killPeer(run, end);
  const auto begin = Clock::now();
  ncclResult_t result = ncclSuccess;
  for (Deadline deadline(run, "an error"); result == ncclSuccess; deadline.check()) result = flow.step();
  expectWithin(run, begin, kKilledLimit);
  expectMessage(run, {hostName(), std::to_string(pid)});
  run.expect(flow.step() != ncclSuccess, "the error went away");
}

void killedSender(Run& run, End& end) {
  killedInFlight(run, end, true);
}
void killedReceiver(Run& run, End& end) {
  killedInFlight(run, end, false);
}

// With a receive posted and nothing under way, on several comms: each of them reports it.
void killedIdle(Run& run, End& end) {
  run.expectWarnings();
  std::vector<netdriver::Ends> comms;
  for (int i = 0; i < 8; ++i) comms.push_back(connectBothWays(run, end));
  sendChecked(run, end.receives() ? comms[0].recv : comms[0].send, end.receives(), 5000, 1);
  end.sync();
  if (!end.receives()) waitToBeKilled(run, nullptr);
  std::vector<Memory> memory;
  std::vector<void*> requests;
  for (const auto& ends : comms) {
    memory.push_back(makeMemory(run, ends.recv, 1000));
    requests.push_back(
        postRecv(run, ends.recv, oneReceive(memory.back().data(), 1000, kTag, memory.back().mhandle())));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(run.scaled(300, 3000)));
  const pid_t pid = killPeer(run, end);
  const auto begin = Clock::now();
  for (size_t i = 0; i < comms.size(); ++i) {
    const ncclResult_t result = waitForResult(run, comms[i].recv, requests[i], Milliseconds(10000));
    run.expect(result != ncclSuccess, "a receive from a killed process succeeded");
    run.count("comms that reported it");
  }
  expectWithin(run, begin, kKilledLimit);
  expectMessage(run, {hostName(), std::to_string(pid)});
}

// With no request at all: the next call after a second says so.
void killedSilent(Run& run, End& end) {
  run.expectWarnings();
  const netdriver::Ends ends = connectBothWays(run, end);
  const Memory memory = makeMemory(run, ends.send, 1000);
  end.sync();
  if (!end.receives()) waitToBeKilled(run, nullptr);
  killPeer(run, end);
  std::this_thread::sleep_for(kKilledLimit);
  void* request = nullptr;
  ncclResult_t result =
      end.net().isend(ends.send.raw(), {memory.data(), 1000, kTag, memory.mhandle()}, &request);
  if (result == ncclSuccess) {
    int done = 0;
    run.expect(request != nullptr, "a send to a killed process is put off");
    if (request != nullptr) result = end.net().test(request, &done, nullptr);
  }
  run.expect(result != ncclSuccess, "neither isend nor the first test reported the killed process");
  run.count("calls that reported it");
}

// While the connection is being made.
void killedConnecting(Run& run, End& end) {
  run.expectWarnings();
  netdriver::Listener listener;
  if (end.receives()) listener = run.need(netdriver::listen(end.context(), end.device()));
  Handle handle = end.exchange(listener.handle);
  if (!end.receives()) {
    void* raw = nullptr;
    for (int i = 0; i < 20 && raw == nullptr; ++i)
      end.net().connect(end.context().raw(), end.device(), handle.data(), &raw);
    end.sync();
    waitToBeKilled(run, nullptr);
  }
  end.sync();
  killPeer(run, end);
  // Accept finds nothing or reports it; the listener can be closed either way.
  void* raw = nullptr;
  const auto stop = Clock::now() + Milliseconds(1500);
  ncclResult_t result = ncclSuccess;
  while (Clock::now() < stop && result == ncclSuccess && raw == nullptr)
    result = end.net().accept(listener.comm.raw(), &raw);
  const Comm half(end.net(), netdriver::Side::recv, raw);
  run.success(listener.comm.close(), Call::closeListen);
  run.count("half-made connections");
}

// Stopped in the middle of a transfer for three seconds: not an error, and nothing is lost. A warning may
// name the stopped process.
void stopped(Run& run, End& end) {
  run.expectWarnings();
  const auto messages = static_cast<uint64_t>(run.scaled(200, 2000));
  netdriver::Ends ends = connectBothWays(run, end);
  Flow in(run, ends.recv, true);
  Flow out(run, ends.send, false);
  in.limit(messages);
  out.limit(messages);
  end.sync();
  std::thread waker;
  Deadline deadline(run, "every message, with a pause of 3 s in between");
  for (; in.done() < messages || out.done() < messages; deadline.check()) {
    run.success(in.step(), Call::test);
    run.success(out.step(), Call::test);
    if (waker.joinable() || end.peer() == nullptr || in.done() < messages / 4) continue;
    end.peer()->signal(SIGSTOP);
    run.count("stops of 3 s");
    waker = std::thread([&end] {
      std::this_thread::sleep_for(std::chrono::seconds(3));
      end.peer()->signal(SIGCONT);
    });
  }
  if (waker.joinable()) waker.join();
  run.count("messages", in.done() + out.done());
  end.sync();
}

// Stopped while idle, which nobody should notice but for that warning.
void stoppedIdle(Run& run, End& end) {
  run.expectWarnings();
  const Comm comm = connectOneWay(run, end);
  sendChecked(run, comm, end.receives(), 1000, 1);
  end.sync();
  if (end.peer() != nullptr) {
    end.peer()->signal(SIGSTOP);
    std::this_thread::sleep_for(std::chrono::seconds(3));
    end.peer()->signal(SIGCONT);
    run.count("stops of 3 s");
  }
  sendChecked(run, comm, end.receives(), 100000, 2);
  end.sync();
}

// The victim has a worker that it forked, which keeps everything the victim had open; it is killed all the
// same.
void killedWithWorker(Run& run, End& end) {
  run.expectWarnings();
  netdriver::Ends ends = connectBothWays(run, end);
  Flow flow(run, end.receives() ? ends.recv : ends.send, end.receives());
  if (!end.receives() && fork() == 0) {
    std::this_thread::sleep_for(std::chrono::seconds(8));
    _exit(0);
  }
  end.sync();
  if (!end.receives()) waitToBeKilled(run, &flow);
  Deadline warmUp(run, "the first messages");
  for (; flow.done() < 20; warmUp.check()) run.success(flow.step(), Call::test);
  killPeer(run, end);
  const auto begin = Clock::now();
  ncclResult_t result = ncclSuccess;
  for (Deadline deadline(run, "an error"); result == ncclSuccess; deadline.check()) result = flow.step();
  expectWithin(run, begin, kKilledLimit);
}

constexpr Case kCases[] = {
    {.name = "killed-sender", .pair = &killedSender, .processesOnly = true, .peerMayDie = true},
    {.name = "killed-receiver", .pair = &killedReceiver, .processesOnly = true, .peerMayDie = true},
    {.name = "killed-idle", .pair = &killedIdle, .processesOnly = true, .peerMayDie = true},
    {.name = "killed-silent", .pair = &killedSilent, .processesOnly = true, .peerMayDie = true},
    {.name = "killed-connecting", .pair = &killedConnecting, .processesOnly = true, .peerMayDie = true},
    {.name = "killed-with-worker", .pair = &killedWithWorker, .processesOnly = true, .peerMayDie = true},
    {.name = "stopped", .pair = &stopped, .processesOnly = true},
    {.name = "stopped-idle", .pair = &stoppedIdle, .processesOnly = true},
};

}  // namespace
}  // namespace weft::system

int main(int argc, char** argv) {
  return weft::system::runProgram(argc, argv, weft::system::kCases);
}
