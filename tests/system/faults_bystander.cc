// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <csignal>

#include "tests/system/driver/flow.h"
#include "tests/system/driver/program.h"

// One engine with two peers. One of them stops in the middle of a transfer and its comm is closed; what goes
// to the other one, the bystander, goes on. Side 0 sends to both; the bystander is a process of its own.
namespace weft::system {
namespace {

constexpr uint64_t kMessages = 300;

Comm sendTo(Run& run, End& end, const Context& context) {
  netdriver::Listener listener;
  if (!end.receives()) listener = run.need(netdriver::listen(end.context(), end.device()));
  Handle handle = end.exchange(listener.handle);
  return end.receives() ? finishConnect(run, end, context, &handle) : finishAccept(run, listener.comm);
}

// Alone it is a flow like any other.
void bystander(Run& run, End& end) {
  const Comm comm = sendTo(run, end, end.context());
  Flow flow(run, comm, !end.receives());
  flow.limit(kMessages);
  for (Deadline deadline(run, "every message of the bystander"); flow.done() < kMessages; deadline.check())
    run.success(flow.step(), Call::test);
  end.sync();
}

netdriver::ChildProcess spawnBystander(Run& run, uint16_t port) {
  const Settings& settings = run.settings();
  std::vector<std::string> arguments = {netdriver::ownPath(),
                                        "--case",
                                        "bystander",
                                        "--abi",
                                        std::to_string(settings.abis.front()),
                                        "--side",
                                        "1",
                                        "--port",
                                        std::to_string(port),
                                        "--plugin",
                                        settings.plugin};
  if (settings.merge) arguments.emplace_back("--merge");
  for (const std::string& assignment : settings.otherProcess)
    arguments.insert(arguments.end(), {"--other", assignment});
  return run.need(netdriver::ChildProcess::spawn({arguments}));
}

void waitForTheEnd(Run& run, End& end) {
  const Comm comm = sendTo(run, end, end.context());
  Flow flow(run, comm, true);
  for (Deadline deadline(run, "to be killed");; deadline.check())
    if (flow.step() != ncclSuccess) flow.limit(flow.done());
}

void stepUntil(Run& run, Flow& flow, uint64_t messages) {
  for (Deadline deadline(run, "messages to the bystander"); flow.done() < messages; deadline.check())
    run.success(flow.step(), Call::test);
}

void peerStops(Run& run, End& end) {
  run.expectWarnings();
  if (!end.receives()) return waitForTheEnd(run, end);
  auto listener = run.need(netdriver::listenLocally());
  netdriver::ChildProcess child = spawnBystander(run, listener.port);
  netdriver::Place place;
  place.size = 2;
  place.port = listener.port;
  place.listenFd = listener.fd.release();
  End other(run, end.net(), place, &child, end.device());
  const Comm comm = sendTo(run, other, end.context());
  Flow flow(run, comm, false);
  flow.limit(kMessages);
  {
    const Comm stuck = sendTo(run, end, end.context());
    Flow lost(run, stuck, false);
    stepUntil(run, flow, 20);
    for (Deadline deadline(run, "the first messages to who stops"); lost.done() < 20; deadline.check())
      run.success(lost.step(), Call::test);
    end.peer()->signal(SIGSTOP);
    for (Deadline deadline(run, "messages while the other one rests"); flow.done() < 100; deadline.check()) {
      run.success(flow.step(), Call::test);
      run.success(lost.step(), Call::test);
    }
  }
  run.count("messages before the comm to who stops was closed", flow.done());
  stepUntil(run, flow, kMessages);
  run.count("messages to the bystander", flow.done());
  other.sync();
  const auto status = child.wait(run.settings().timeout);
  run.expect(status == 0,
             "the bystander: " + (status ? netdriver::describeStatus(*status) : "still running"));
  end.peer()->signal(SIGKILL);
}

constexpr const char* kSoon = "WEFT_CLOSE_TIMEOUT=700";

constexpr Case kCases[] = {
    {.name = "bystander", .pair = &bystander, .processesOnly = true},
    {.name = "peer-stops",
     .pair = &peerStops,
     .processesOnly = true,
     .peerMayDie = true,
     .environment = kSoon},
};

}  // namespace
}  // namespace weft::system

int main(int argc, char** argv) {
  return weft::system::runProgram(argc, argv, weft::system::kCases);
}
