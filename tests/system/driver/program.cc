// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/system/driver/program.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "tests/support/patience.h"
#include "tests/system/driver/process_state.h"
#include "tools/netdriver/child_process.h"
#include "tools/netdriver/log_sink.h"

namespace weft::system {

namespace {

using netdriver::LogSink;

constexpr int kNewest = 12;
constexpr int kNothingRan = 77;  // Meson's status of a test that is skipped
constexpr int kOldest = 8;       // older tables are not driven here: no release in use prefers them

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream stream(list);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

std::vector<int> versions(const std::string& list) {
  std::vector<int> found;
  for (const std::string& version : split(list)) found.push_back(std::stoi(version));
  return found;
}

// True when it took the option.
bool parseFlag(const std::string& name, Settings* s) {
  bool* flag = name == "--full"      ? &s->full
               : name == "--verbose" ? &s->verbose
               : name == "--merge"   ? &s->merge
                                     : nullptr;
  if (flag) *flag = true;
  return flag != nullptr;
}

bool parseOption(const std::string& name, const std::string& value, Settings* s) {
  if (name == "--plugin")
    s->plugin = value;
  else if (name == "--case")
    s->only = split(value);
  else if (name == "--timeout")
    s->timeout = Milliseconds(1000 * std::stol(value));
  else if (name == "--mode")
    s->modes = split(value);
  else if (name == "--side")
    s->rank = std::stoi(value);
  else if (name == "--port")
    s->rendezvousPort = static_cast<uint16_t>(std::stoi(value));
  else if (name == "--abi")
    s->abis = versions(value);
  else if (name == "--break")
    s->breakCommand = value;
  else if (name == "--other")
    s->otherProcess.push_back(value);
  else if (name == "--third")
    s->thirdProcess.push_back(value);
  else if (name == "--few-abi")
    s->fewAbis = versions(value);
  else
    return false;
  return true;
}

bool parse(int argc, char** argv, Settings* s) {
  s->plugin = netdriver::defaultPluginPath();
  s->modes = {"threads", "processes"};
  for (int abi = kNewest; abi >= kOldest; --abi) s->abis.push_back(abi);
  const char* full = environmentValue("WEFT_TEST_FULL");
  s->full = full != nullptr && std::strcmp(full, "1") == 0;
  for (int i = 1; i < argc; ++i) {
    if (parseFlag(argv[i], s)) continue;
    if (i + 1 >= argc || !parseOption(argv[i], argv[i + 1], s)) {
      std::fprintf(stderr, "unknown argument, or one without its value: %s\n", argv[i]);
      return false;
    }
    ++i;
  }
  if (!s->full && !s->fewAbis.empty()) s->abis = s->fewAbis;
  return true;
}

// Its name.
std::string setVariable(const std::string& assignment) {
  const size_t end = assignment.find('=');
  if (end == std::string::npos) throw std::invalid_argument(assignment + " is not NAME=VALUE");
  std::string name = assignment.substr(0, end);
  setenv(name.c_str(), assignment.c_str() + end + 1, 1);
  return name;
}

// Sets a variable for the life of a case.
class Variable {
 public:
  explicit Variable(const char* assignment) {
    if (assignment != nullptr) name_ = setVariable(assignment);
  }
  ~Variable() {
    if (!name_.empty()) unsetenv(name_.c_str());
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  std::string name_;
};

class Program {
 public:
  Program(const Settings& settings, std::span<const Case> cases)
      : settings_(settings), full_(settings.full), cases_(cases) {}

  int run() {
    if (settings_.rank != 0) return runSecondSide();
    for (const int abi : settings_.abis) runAbi(abi);
    const std::string skipped = skipped_ > 0 ? ", " + std::to_string(skipped_) + " skipped" : "";
    std::printf("%d passed, %d failed%s\n", passed_, failed_, skipped.c_str());
    // A case name that matches nothing must not look like success.
    if (failed_ == 0 && passed_ == 0 && skipped_ > 0) return kNothingRan;
    return failed_ == 0 && passed_ > 0 ? 0 : 1;
  }

 private:
  bool wanted(const Case& c, int abi) const {
    const auto& only = settings_.only;
    if (abi < c.minAbi) return false;
    if (only.empty()) return !c.breaks || !settings_.breakCommand.empty();
    return std::find(only.begin(), only.end(), c.name) != only.end();
  }

  // The tables differ in a few lines above functions they share, so full counts are for the first one asked
  // for.
  void runAbi(int abi) {
    settings_.full = full_ && abi == settings_.abis.front();
    for (const Case& c : cases_) {
      if (!wanted(c, abi)) continue;
      if (c.alone != nullptr) {
        report(c, abi, "alone", [&](Run& run) { runAlone(run, c, abi); });
        continue;
      }
      for (const std::string& mode : settings_.modes) {
        if ((c.processesOnly && mode != "processes") || (c.threadsOnly && mode != "threads")) continue;
        report(c, abi, mode, [&](Run& run) { runPair(run, c, abi, mode); });
      }
    }
  }

  template <class Body>
  void report(const Case& c, int abi, const std::string& mode, Body body) {
    Run run(settings_, c.name);
    const Variable variable(c.environment);
    const auto begin = std::chrono::steady_clock::now();
    LogSink::instance().takeWarnings();
    guarded(run, [&] { body(run); });
    // The library was closed: a thread that is left would run on in memory that is no longer there.
    for (const ThreadState& thread : threadsLeft("weft-"))
      run.expect(false, "thread " + thread.name + " outlives its library");
    checkWarnings(run);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    const bool ok = run.failures() == 0;
    const std::string skipped = ok ? run.skipped() : "";
    ++(!ok ? failed_ : skipped.empty() ? passed_ : skipped_);
    std::printf("%-6s %-24s v%-2d %-9s %6.2f s  %s\n",
                !ok               ? "FAILED"
                : skipped.empty() ? "ok"
                                  : "skip",
                c.name, abi, mode.c_str(), elapsed.count(),
                skipped.empty() ? run.summary().c_str() : skipped.c_str());
    std::fflush(stdout);
  }

  template <class Body>
  static void guarded(Run& run, Body body) {
    try {
      body();
    } catch (const CaseFailed&) {
      // Reported where it happened.
    } catch (const CaseSkipped&) {
      // Listed when the case ends.
    } catch (const std::exception& e) {
      run.expect(false, std::string("exception: ") + e.what());
    }
  }

  static void checkWarnings(Run& run) {
    const auto warnings = LogSink::instance().takeWarnings();
    if (run.failures() > 0)
      for (const std::string& warning : warnings) std::printf("the plugin warned: %s\n", warning.c_str());
    if (run.warningsExpected()) return;
    for (const std::string& warning : warnings) run.expect(false, "the plugin warned: " + warning);
  }

  static void runAlone(Run& run, const Case& c, int abi) { c.alone(run, abi); }

  static void runSide(Run& run, const Case& c, Net& net, const netdriver::Place& place,
                      netdriver::ChildProcess* peer) {
    guarded(run, [&] {
      End end(run, net, place, peer);
      c.pair(run, end);
    });
  }

  void runPair(Run& run, const Case& c, int abi, const std::string& mode) {
    auto listener = run.need(netdriver::listenLocally());
    netdriver::Place place;
    place.size = 2;
    place.port = listener.port;
    place.listenFd = listener.fd.release();
    if (mode == "threads") return runThreads(run, c, abi, place);
    netdriver::ChildProcess child =
        run.need(netdriver::ChildProcess::spawn({secondSideArguments(c, abi, place.port)}));
    const auto library = openPlugin(run, abi);
    runSide(run, c, library->net(), place, &child);
    if (!c.peerMayDie) {
      const auto status = child.wait(settings_.timeout);
      run.expect(status == 0,
                 "the other process: " + (status ? netdriver::describeStatus(*status) : "still running"));
    }
    checkCallTimes(run, library->net());
  }

  static void runThreads(Run& run, const Case& c, int abi, const netdriver::Place& place) {
    const auto library = openPlugin(run, abi);
    netdriver::Place other = place;
    other.rank = 1;
    other.listenFd = -1;
    std::thread second([&] { runSide(run, c, library->net(), other, nullptr); });
    runSide(run, c, library->net(), place, nullptr);
    second.join();
    checkCallTimes(run, library->net());
  }

  std::vector<std::string> secondSideArguments(const Case& c, int abi, uint16_t port) const {
    std::vector<std::string> arguments = {netdriver::ownPath(),
                                          "--case",
                                          c.name,
                                          "--abi",
                                          std::to_string(abi),
                                          "--side",
                                          "1",
                                          "--port",
                                          std::to_string(port),
                                          "--plugin",
                                          settings_.plugin,
                                          "--timeout",
                                          std::to_string(settings_.timeout.count() / 1000)};
    if (settings_.full) arguments.emplace_back("--full");
    if (settings_.verbose) arguments.emplace_back("--verbose");
    if (settings_.merge) arguments.emplace_back("--merge");
    for (const std::string& assignment : settings_.otherProcess) {
      arguments.emplace_back("--other");
      arguments.push_back(assignment);
    }
    return arguments;
  }

  int runSecondSide() {
    for (const std::string& assignment : settings_.otherProcess) setVariable(assignment);
    const auto found =
        std::find_if(cases_.begin(), cases_.end(), [&](const Case& c) { return wanted(c, kNewest); });
    if (found == cases_.end()) return 1;
    Run run(settings_, found->name);
    guarded(run, [&] {
      const auto library = openPlugin(run, settings_.abis.front());
      netdriver::Place place;
      place.rank = 1;
      place.size = 2;
      place.port = settings_.rendezvousPort;
      runSide(run, *found, library->net(), place, nullptr);
      checkCallTimes(run, library->net());
    });
    checkWarnings(run);
    return run.failures() == 0 ? 0 : 1;
  }

  Settings settings_;  // of the table that is run
  const bool full_;
  std::span<const Case> cases_;
  int passed_ = 0;
  int failed_ = 0;
  int skipped_ = 0;
};

}  // namespace

int runProgram(int argc, char** argv, std::span<const Case> cases) {
  Settings settings;
  if (!parse(argc, argv, &settings)) return 2;
  unsetenv("WEFT_TEST_FULL");  // ours, not one of the plugin's
  LogSink::instance().setQuiet(!settings.verbose);
  LogSink::instance().setVerbose(settings.verbose);
  return Program(settings, cases).run();
}

std::unique_ptr<netdriver::Library> openPlugin(Run& run, int abi) {
  auto library = run.need(netdriver::Library::open(run.settings().plugin, abi));
  library->net().meter().enable(true);
  return library;
}

void checkCallTimes(Run& run, Net& net) {
  const auto limit =
      std::chrono::duration_cast<std::chrono::nanoseconds>(kCallLimit * run.cards() * test::patience())
          .count();
  for (const Call call : {Call::connect, Call::accept, Call::isend, Call::irecv, Call::test}) {
    const int64_t longest = net.meter().maxNanoseconds(call);
    run.expect(longest <= limit, std::string("a call of ") + netdriver::callName(call) + " took " +
                                     std::to_string(longest / 1000) + " us of CPU time");
  }
}

}  // namespace weft::system
