// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <csignal>
#include <cstdlib>
#include <optional>

#include "tests/system/driver/flow.h"
#include "tests/system/driver/program.h"

// One engine with two peers, to both of which side 0 sends. One of them stops, or one of the ways to it does;
// what goes to the other one, the bystander, a process of its own, goes on.
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

// Its card is cut at the other end.
void disturbedBystander(Run& run, End& end) {
  run.expectWarnings();
  bystander(run, end);
}

netdriver::ChildProcess spawn(Run& run, const char* name, uint16_t port) {
  const Settings& settings = run.settings();
  std::vector<std::string> arguments = {netdriver::ownPath(),
                                        "--case",
                                        name,
                                        "--abi",
                                        std::to_string(settings.abis.front()),
                                        "--side",
                                        "1",
                                        "--port",
                                        std::to_string(port),
                                        "--plugin",
                                        settings.plugin};
  if (settings.merge) arguments.emplace_back("--merge");
  for (const auto& assignment : settings.thirdProcess.empty() ? settings.otherProcess : settings.thirdProcess)
    arguments.insert(arguments.end(), {"--other", assignment});
  return run.need(netdriver::ChildProcess::spawn({arguments}));
}

// The process and side 0's end of what it does with it.
class Bystander {
 public:
  Bystander(Run& run, End& end, const char* name)
      : run_(run), meeting_(run.need(netdriver::listenLocally())), process_(spawn(run, name, meeting_.port)) {
    netdriver::Place place;
    place.size = 2;
    place.port = meeting_.port;
    place.listenFd = meeting_.fd.release();
    end_.emplace(run, end.net(), place, &process_, end.device());
  }

  End& end() { return *end_; }

  void expectGoodEnd() {
    end_->sync();
    const auto status = process_.wait(run_.settings().timeout);
    run_.expect(status == 0,
                "the bystander: " + (status ? netdriver::describeStatus(*status) : "still running"));
  }

 private:
  Run& run_;
  netdriver::LocalListener meeting_;
  netdriver::ChildProcess process_;
  std::optional<End> end_;
};

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
  Bystander other(run, end, "bystander");
  const Comm comm = sendTo(run, other.end(), end.context());
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
  other.expectGoodEnd();
  end.peer()->signal(SIGKILL);
}

// --break silences the way to the other side over one of several cards, but not the way to the bystander over
// the same one. What was written to the silent way has to be taken back before it is written again elsewhere,
// which ends all there is on that card: both peers go on over the others.
void wayBreaks(Run& run, End& end) {
  run.expectWarnings();
  if (!end.receives()) return disturbedBystander(run, end);
  run.require(end.properties().virtualMembers > 1, "the device has a single card");
  Bystander other(run, end, "disturbed-bystander");
  const Comm toBystander = sendTo(run, other.end(), end.context());
  const Comm toOther = sendTo(run, end, end.context());
  Flow beside(run, toBystander, false);
  Flow broken(run, toOther, false);
  const auto both = [&](uint64_t messages, const char* what) {
    beside.limit(messages);
    broken.limit(messages);
    for (Deadline deadline(run, what); beside.done() < messages || broken.done() < messages;
         deadline.check()) {
      run.success(beside.step(), Call::test);
      run.success(broken.step(), Call::test);
    }
  };
  both(20, "the first messages");
  run.require(std::system(run.settings().breakCommand.c_str()) == 0, "the command of --break failed");
  both(kMessages, "every message, with a way lost");
  run.count("messages", beside.done() + broken.done());
  expectMessage(run, {"is left to the other rails", "a lane on the same card had to be cut"});
  end.sync();
  other.expectGoodEnd();
}

constexpr const char* kSoon = "WEFT_CLOSE_TIMEOUT=700";

constexpr Case kCases[] = {
    {.name = "bystander", .pair = &bystander, .processesOnly = true},
    {.name = "disturbed-bystander", .pair = &disturbedBystander, .processesOnly = true},
    {.name = "peer-stops",
     .pair = &peerStops,
     .processesOnly = true,
     .peerMayDie = true,
     .environment = kSoon},
    {.name = "way-breaks", .pair = &wayBreaks, .processesOnly = true, .breaks = true, .environment = kSoon},
};

}  // namespace
}  // namespace weft::system

int main(int argc, char** argv) {
  return weft::system::runProgram(argc, argv, weft::system::kCases);
}
