// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/stats/autopsy.h"

#include <algorithm>
#include <ctime>
#include <map>
#include <set>

#include <fmt/format.h>

#include "tools/json/json.h"
#include "tools/output/output.h"

namespace weft::counted {

namespace {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kStill = 2 * kSecond;   // without any progress, while something is wanted: it stands still
constexpr uint64_t kSilent = 5 * kSecond;  // behind the beat of others: it beats about each second

double seconds(uint64_t span) {
  return static_cast<double>(span) / static_cast<double>(kSecond);
}

std::string timeText(uint64_t time) {
  if (time == 0) return "never";
  const auto whole = static_cast<std::time_t>(time / kSecond);
  std::tm parts{};
  ::gmtime_r(&whole, &parts);
  return fmt::format("{:02}:{:02}:{:02}.{:03} UTC", parts.tm_hour, parts.tm_min, parts.tm_sec,
                     time % kSecond / 1'000'000);
}

std::string nameOf(const Process& process) {
  return fmt::format("{} pid {}", process.presence.place, process.presence.pid);
}

// When a request of it was posted or finished last.
uint64_t movedLast(const Process& process) {
  uint64_t last = process.begun;
  for (const Comm& comm : process.comms)
    for (const Request& request : comm.requests) last = std::max({last, request.posted, request.done});
  return last;
}

// A message that a process wants of a peer and has not got, or not got rid of.
struct Want {
  const Comm* comm = nullptr;
  uint64_t since = 0;
  uint32_t tag = 0, k = 0, bytes = 0;
  bool told = false;  // a receive: the peer was told where it goes
};

void add(std::vector<Want>* wants, const Comm& comm) {
  if (comm.state != stats::LineState::live && comm.state != stats::LineState::failed) return;
  if (comm.waitsSince != 0)
    wants->push_back({&comm, comm.waitsSince, comm.waitTag, comm.waitK, comm.waitBytes, false});
  for (const Request& request : comm.requests) {
    if (request.done != 0) continue;
    wants->push_back({&comm, request.posted, request.tag, request.k, request.bytes, request.told != 0});
    return;  // the oldest says enough
  }
}

std::vector<Want> wantsOf(const Process& process) {
  std::vector<Want> wants;
  for (const Comm& comm : process.comms) add(&wants, comm);
  return wants;
}

std::string textOf(const Process& process, const Want& want) {
  return fmt::format("{} waits {:.1f} s {} {}: tag {}, message {}, {} bytes, comm {} on {}", nameOf(process),
                     seconds(process.now > want.since ? process.now - want.since : 0),
                     want.comm->sends ? "to send to" : "to receive from", want.comm->peer, want.tag, want.k,
                     want.bytes, want.comm->number, want.comm->device);
}

// "rank 3 on node7 pid 4711 (192.0.2.7)" names a process as it names itself.
bool names(const std::string& peer, const Process& process) {
  return (peer + " ").find(nameOf(process) + " ") != std::string::npos;
}

// It has closed all of its comms, and one of them had ended with an error: another rank was its trouble.
bool endedByError(const Process& process) {
  const auto is = [](stats::LineState state) {
    return [state](const Comm& one) { return one.state == state; };
  };
  return std::any_of(process.comms.begin(), process.comms.end(), is(stats::LineState::failed)) &&
         std::none_of(process.comms.begin(), process.comms.end(), is(stats::LineState::live));
}

struct Dead {
  const char* kind;
  const char* words;
  const char* advice;
};

// Null: nothing is known against it.
const Dead* troubleOf(const Process& process, uint64_t latestBeat) {
  static constexpr Dead kGone{
      "died", "is not running any more",
      "read its output and the kernel's log of that host (dmesg: out of memory, a signal)"};
  static constexpr Dead kStopped{"stopped", "is stopped", "kill -CONT lets it go on"};
  static constexpr Dead kTraced{"debugger", "is stopped by a debugger", "detach the debugger"};
  static constexpr Dead kSilentOne{"silent", "was not heard of while others were",
                                   "look at that host: is it up, is it swapping, is the process stopped?"};
  if (endedByError(process)) return nullptr;
  if (process.state == ProcessState::gone) return &kGone;
  if (process.state == ProcessState::stopped) return &kStopped;
  if (process.state == ProcessState::traced) return &kTraced;
  return process.beat + kSilent < latestBeat ? &kSilentOne : nullptr;
}

std::vector<std::string> evidenceOf(const std::vector<Process>& processes, const Process* culprit) {
  std::vector<std::string> evidence;
  for (const Process& process : processes)
    for (const Want& want : wantsOf(process))
      if (culprit && &process != culprit && names(want.comm->peer, *culprit))
        evidence.push_back(textOf(process, want));
  return evidence;
}

// Of those with something against them the one that moved last the longest ago.
bool judgeDead(const std::vector<Process>& processes, Verdict* verdict) {
  uint64_t latest = 0;
  for (const Process& process : processes) latest = std::max(latest, process.beat);
  for (const Process& process : processes) {
    const Dead* trouble = troubleOf(process, latest);
    const uint64_t moved = movedLast(process);
    if (!trouble || (verdict->culprit && verdict->since <= moved)) continue;
    verdict->kind = trouble->kind;
    verdict->culprit = &process;
    verdict->since = moved;
    verdict->advice = trouble->advice;
    verdict->evidence = {fmt::format("{} {}; it was seen last at {}", nameOf(process), trouble->words,
                                     timeText(process.beat))};
  }
  return verdict->culprit != nullptr;
}

// All live. The one that others wait for, and that itself waits for nobody, has not come to the call that
// they wait for. Where all wait it is the one that has stood still the longest.
void judgeLate(const std::vector<Process>& processes, Verdict* verdict) {
  const Process* waiting = nullptr;
  for (const Process& process : processes) {
    if (endedByError(process)) continue;
    const uint64_t moved = movedLast(process);
    const std::vector<Want> wants = wantsOf(process);
    const bool stands = std::any_of(wants.begin(), wants.end(),
                                    [&](const Want& want) { return process.now > want.since + kStill; }) &&
                        process.now > moved + kStill;
    if (stands && (!waiting || moved < movedLast(*waiting))) waiting = &process;
    if (!wants.empty() || evidenceOf(processes, &process).empty() || process.now <= moved + kStill) continue;
    if (verdict->culprit && verdict->since <= moved) continue;
    verdict->kind = "late";
    verdict->culprit = &process;
    verdict->since = moved;
    verdict->advice =
        "others wait for it and it waits for nobody: look where its threads are (py-spy dump, gdb)";
  }
  if (!waiting) {
    *verdict = {};
    verdict->kind = "none";
    return;
  }
  if (verdict->culprit) return;
  verdict->kind = "circle";
  verdict->culprit = waiting;
  verdict->since = movedLast(*waiting);
  verdict->advice = "all ranks wait for each other: compare which collective each of them is in";
  for (const Want& want : wantsOf(*waiting)) verdict->evidence.push_back(textOf(*waiting, want));
}

// By each peer that processes had failed comms with: how many processes. A peer that had such comms itself is
// left out: its word stands against theirs, as where the network between two hosts was cut.
std::map<std::string, size_t> blamed(const std::vector<Process>& processes) {
  std::map<std::string, size_t> by;
  for (const Process& process : processes) {
    std::set<std::string> peers;
    for (const Comm& comm : process.comms)
      if (comm.state == stats::LineState::failed) peers.insert(comm.peer);
    for (const std::string& peer : peers) by[peer]++;
  }
  std::erase_if(by, [&](const auto& one) {
    return std::any_of(processes.begin(), processes.end(), [&](const Process& process) {
      return names(one.first, process) && endedByError(process);
    });
  });
  return by;
}

// Nobody is found dead or standing, and there were errors: the peer is named that most processes blame. Where
// several are blamed as often nobody is named.
void judgeFailed(const std::vector<Process>& processes, Verdict* verdict) {
  std::vector<std::string> evidence;
  for (const Process& process : processes)
    for (const Comm& comm : process.comms)
      if (comm.state == stats::LineState::failed)
        evidence.push_back(fmt::format("{}: comm {} {} {} ended with an error", nameOf(process), comm.number,
                                       comm.sends ? "to" : "from", comm.peer));
  if (evidence.empty()) return;
  *verdict = {};
  verdict->kind = "failed";
  verdict->evidence = std::move(evidence);
  verdict->advice =
      "the first WARN of each rank's output has the reason; look at the host of a rank that all name, then "
      "at "
      "the network between them (weft doctor --hosts)";
  const auto by = blamed(processes);
  const auto fewer = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto most = std::max_element(by.begin(), by.end(), fewer);
  const auto alike = [&](const auto& one) { return one.second == most->second; };
  if (std::count_if(by.begin(), by.end(), alike) == 1) verdict->peer = most->first;
}

std::string headOf(const Verdict& verdict, size_t processes) {
  if (verdict.culprit)
    return fmt::format("verdict: {} ({}), which moved last at {}\n", nameOf(*verdict.culprit), verdict.kind,
                       timeText(verdict.since));
  if (verdict.kind != "failed")
    return fmt::format("{} processes, and none of them stands still\n", processes);
  return verdict.peer.empty()
             ? "verdict: connections failed (failed), and no rank is to blame by what they left\n"
             : fmt::format("verdict: {} (failed), by what its peers left\n", verdict.peer);
}

std::string textOf(const Verdict& verdict, size_t processes) {
  std::string text = headOf(verdict, processes);
  for (const std::string& line : verdict.evidence) text += "  " + line + "\n";
  return verdict.advice.empty() ? text : text + "what to do: " + verdict.advice + "\n";
}

std::string jsonTextOf(const Verdict& verdict, const std::vector<Process>& processes) {
  Json ranks = Json::array();
  for (const Process& process : processes)
    ranks.append(Json{{"pid", process.presence.pid},
                      {"place", process.presence.place},
                      {"state", name(process.state)},
                      {"moved_last", seconds(movedLast(process))},
                      {"last_beat", seconds(process.beat)}});
  Json culprit;
  if (verdict.culprit)
    culprit = Json{{"pid", verdict.culprit->presence.pid},
                   {"place", verdict.culprit->presence.place},
                   {"hostname", verdict.culprit->host},
                   {"moved_last", seconds(verdict.since)}};
  return Json{{"version", 1},
              {"verdict", verdict.kind},
              {"culprit", culprit},
              {"peer", verdict.peer},
              {"evidence", Json(verdict.evidence)},
              {"advice", verdict.advice},
              {"processes", ranks}}
             .text() +
         "\n";
}

}  // namespace

Verdict judge(const std::vector<Process>& processes) {
  Verdict verdict;
  if (!judgeDead(processes, &verdict)) judgeLate(processes, &verdict);
  if (verdict.kind == "none") {
    judgeFailed(processes, &verdict);
    return verdict;
  }
  for (std::string& line : evidenceOf(processes, verdict.culprit))
    verdict.evidence.push_back(std::move(line));
  return verdict;
}

int runAutopsy(const AutopsyOptions& options) {
  const std::vector<Process> processes = read({options.folder, {}, true});
  if (processes.empty()) {
    fmt::print(stderr,
               "weft autopsy: there is nothing to read in {}: was it WEFT_STATE_DIR of the job? A job that "
               "ends well takes its files along\n",
               options.folder);
    return 1;
  }
  const Verdict verdict = judge(processes);
  const Status shown =
      show(options.json ? jsonTextOf(verdict, processes) : textOf(verdict, processes.size()));
  if (shown) return 0;
  fmt::print(stderr, "weft autopsy: {}\n", shown.error().message());
  return 1;
}

}  // namespace weft::counted
