// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <set>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "tests/system/driver/process_state.h"
#include "tests/system/driver/program.h"
#include "tests/system/driver/traffic.h"
#include "tools/netdriver/bootstrap.h"

// A plugin is a guest in somebody else's process: it comes and goes without a trace, and while it is there it
// changes nothing around it. Each case connects the process to itself, so that everything a plugin has is
// running.
namespace weft::system {
namespace {

using netdriver::Library;

// A loaded plugin with a connection from this process to itself.
struct Guest {
  std::unique_ptr<Library> library;
  std::optional<Context> context;
  netdriver::Ends ends;
};

Guest bringUp(Run& run, int abi) {
  Guest guest;
  guest.library = openPlugin(run, abi);
  guest.context.emplace(run.need(Context::create(guest.library->net(), 1)));
  int devices = 0;
  run.success(guest.library->net().devices(&devices), Call::devices);
  run.require(devices > 0, "the plugin offers no device");
  netdriver::Listener listener = run.need(netdriver::listen(*guest.context, 0));
  const Handle handle = listener.handle;
  guest.ends = run.need(
      netdriver::connectBoth(*guest.context, 0, handle, std::move(listener), run.settings().timeout));
  return guest;
}

void moveMessage(Run& run, Guest& guest, uint64_t seed) {
  constexpr size_t kBytes = 50000;
  const Memory out = makeMemory(run, guest.ends.send, kBytes);
  const Memory in = makeMemory(run, guest.ends.recv, kBytes);
  fill({out.data(), kBytes}, seed);
  void* receive = postRecv(run, guest.ends.recv, oneReceive(in.data(), kBytes, 1, in.mhandle()));
  void* send = postSend(run, guest.ends.send, {out.data(), kBytes, 1, out.mhandle()});
  Deadline deadline(run, "a message to ourselves");
  for (bool sent = false, received = false; !sent || !received; deadline.check()) {
    sent = sent || testOnce(run, guest.ends.send, send);
    received = received || testOnce(run, guest.ends.recv, receive);
  }
  run.expect(firstDifference({in.data(), kBytes}, seed) < 0, "wrong data");
  run.count("messages");
}

template <class Items>
std::string listOf(const Items& items, std::string (*text)(const typename Items::value_type&)) {
  std::string all;
  for (const auto& item : items) all += (all.empty() ? "" : ", ") + text(item);
  return all;
}

std::string threadText(const ThreadState& t) {
  return t.name;
}
std::string descriptorText(const DescriptorState& d) {
  return std::to_string(d.fd) + " " + d.target;
}

// Nothing of it is left: no mapping, thread or descriptor.
void reload(Run& run, int abi) {
  const std::string file = std::filesystem::path(run.settings().plugin).filename().string();
  const int rounds = run.scaled(10, 100);
  // The first round also loads what stays by design: libraries of the fabric that cannot be unloaded.
  size_t threadsBefore = 0;
  size_t descriptorsBefore = 0;
  for (int round = 0; round < rounds; ++round) {
    {
      Guest guest = bringUp(run, abi);
      run.require(isMapped(file), file + " is not mapped while it is loaded");
      moveMessage(run, guest, static_cast<uint64_t>(round));
      guest.ends = {};
      guest.context.reset();
    }
    run.require(!isMapped(file), file + " is still mapped after dlclose in round " + std::to_string(round));
    if (round == 0) threadsBefore = threads().size();
    if (round == 0) descriptorsBefore = descriptors().size();
    run.require(threadsFallTo(threadsBefore), "threads are left: " + listOf(threads(), threadText));
    run.require(descriptors().size() <= descriptorsBefore,
                "descriptors are left: " + listOf(descriptors(), descriptorText));
    run.count("reloads");
  }
  const auto left = threadsLeft("weft");
  run.expect(left.empty(), "threads of weft are left: " + listOf(left, threadText));
}

// Any number of times, in any order.
void initAgain(Run& run, int abi) {
  const auto library = openPlugin(run, abi);
  for (int i = 0; i < run.scaled(20, 500); ++i) {
    Context first = run.need(Context::create(library->net(), 1));
    Context second = run.need(Context::create(library->net(), 2));
    int devices = 0;
    run.success(library->net().devices(&devices), Call::devices);
    run.expect(devices > 0, "the plugin offers no device");
    if (i % 2 == 0) std::swap(first, second);
    run.count("init and finalize", 2);
  }
}

// Every signal but those that cannot be blocked and the two that the C library keeps for itself.
uint64_t blockableSignals() {
  uint64_t mask = ~uint64_t{0};
  for (const int number : {SIGKILL, SIGSTOP, 32, 33}) mask &= ~(uint64_t{1} << (number - 1));
  return mask;
}

// Threads are known by name and leave signals to the application. Those of the fabric's own libraries are
// counted.
void threadsOfOurs(Run& run, int abi) {
  Guest guest = bringUp(run, abi);
  moveMessage(run, guest, 1);
  for (const ThreadState& thread : threads()) {
    if (thread.id == getpid()) continue;
    const bool ours = thread.name.starts_with("weft-");
    run.count(ours ? "threads of the plugin" : "threads of fabric libraries");
    if (!ours) continue;
    run.expect((thread.blockedSignals & blockableSignals()) == blockableSignals(),
               thread.name + " lets signals through: blocked are " + std::to_string(thread.blockedSignals));
  }
}

// Also what fabric libraries opened on our behalf.
void closeOnExec(Run& run, int abi) {
  std::set<int> before;
  for (const DescriptorState& d : descriptors()) before.insert(d.fd);
  Guest guest = bringUp(run, abi);
  moveMessage(run, guest, 1);
  for (const DescriptorState& d : descriptors()) {
    if (before.contains(d.fd)) continue;
    run.expect(d.closeOnExec, "descriptor " + descriptorText(d) + " survives exec");
    run.count("descriptors");
  }
}

std::chrono::microseconds processTime() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto us = [](const timeval& t) { return int64_t{t.tv_sec} * 1000000 + t.tv_usec; };
  return std::chrono::microseconds(us(usage.ru_utime) + us(usage.ru_stime));
}

// Connected, with nothing to do: next to no processor time.
void idle(Run& run, int abi) {
  Guest guest = bringUp(run, abi);
  moveMessage(run, guest, 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const auto before = processTime();
  const auto quiet = std::chrono::seconds(run.scaled(2, 20));
  std::this_thread::sleep_for(quiet);
  const auto used = processTime() - before;
  run.expect(used < std::chrono::microseconds(quiet) / 50,
             "an idle process used " + std::to_string(used.count()) + " us of CPU time in " +
                 std::to_string(quiet.count()) + " s");
  run.count("us of CPU time while idle", static_cast<uint64_t>(used.count()));
}

std::vector<struct sigaction> signalActions() {
  std::vector<struct sigaction> actions(NSIG);
  for (int number = 1; number < NSIG; ++number)
    sigaction(number, nullptr, &actions[static_cast<size_t>(number)]);
  return actions;
}

std::vector<std::string> environment() {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) all.emplace_back(*entry);
  return all;
}

// Standard output into a file for the life of the object.
class OutputCapture {
 public:
  OutputCapture() : file_(std::tmpfile()), saved_(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3)) {
    std::fflush(stdout);
    dup2(fileno(file_), STDOUT_FILENO);
  }
  ~OutputCapture() {
    dup2(saved_, STDOUT_FILENO);
    ::close(saved_);
    std::fclose(file_);
  }
  OutputCapture(const OutputCapture&) = delete;
  OutputCapture& operator=(const OutputCapture&) = delete;
  off_t bytes() const {
    std::fflush(stdout);
    return lseek(fileno(file_), 0, SEEK_END);
  }

 private:
  std::FILE* file_;
  int saved_;
};

// Signal handlers, environment and standard output stay as they were.
void surroundings(Run& run, int abi) {
  const auto actionsBefore = signalActions();
  const auto environmentBefore = environment();
  off_t printed = 0;
  {
    const OutputCapture capture;
    Guest guest = bringUp(run, abi);
    moveMessage(run, guest, 1);
    const auto actions = signalActions();
    for (size_t number = 1; number < actions.size(); ++number)
      run.expect(actions[number].sa_handler == actionsBefore[number].sa_handler,
                 "the handler of signal " + std::to_string(number) + " was changed");
    run.expect(environment() == environmentBefore, "the environment was changed");
    guest.ends = {};
    guest.context.reset();
    printed = capture.bytes();
  }
  run.expect(printed == 0, std::to_string(printed) + " bytes were written to standard output");
  run.count("signals compared", NSIG - 1);
}

// A data loader's worker: forked in the middle of things, does its own work, leaves; the parent goes on.
void forkedWorkers(Run& run, int abi) {
  Guest guest = bringUp(run, abi);
  for (uint64_t i = 0; i < static_cast<uint64_t>(run.scaled(5, 50)); ++i) {
    moveMessage(run, guest, i);
    const pid_t child = fork();
    if (child == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      _exit(0);
    }
    run.require(child > 0, "fork");
    moveMessage(run, guest, 1000 + i);
    int status = 0;
    run.expect(waitpid(child, &status, 0) == child && status == 0,
               "the forked process ended with " + netdriver::describeStatus(status));
    moveMessage(run, guest, 2000 + i);
    run.count("forks");
  }
}

// A forked process that calls the plugin all the same is told so, moves nothing, and the parent goes on.
void forkedCalls(Run& run, int abi) {
  run.expectWarnings();
  Guest guest = bringUp(run, abi);
  const Memory memory = makeMemory(run, guest.ends.send, 1000);
  moveMessage(run, guest, 1);
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    void* request = nullptr;
    const ncclResult_t result = guest.library->net().isend(
        guest.ends.send.raw(), {memory.data(), 1000, 1, memory.mhandle()}, &request);
    _exit(result != ncclSuccess || request == nullptr ? 0 : 1);
  }
  run.require(child > 0, "fork");
  int status = 0;
  run.expect(waitpid(child, &status, 0) == child && status == 0,
             "a send in the forked process: " + netdriver::describeStatus(status));
  moveMessage(run, guest, 2);
  run.count("forks");
}

constexpr Case kCases[] = {
    {.name = "reload", .alone = &reload},
    {.name = "init-again", .alone = &initAgain},
    {.name = "threads", .alone = &threadsOfOurs},
    {.name = "close-on-exec", .alone = &closeOnExec},
    {.name = "idle", .alone = &idle},
    {.name = "surroundings", .alone = &surroundings},
    {.name = "forked-workers", .alone = &forkedWorkers},
    {.name = "forked-calls", .alone = &forkedCalls},
};

}  // namespace
}  // namespace weft::system

int main(int argc, char** argv) {
  return weft::system::runProgram(argc, argv, weft::system::kCases);
}
