// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/stats/autopsy.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "tools/json/json.h"
#include "tools/output/output.h"
#include "tools/stats/stats.h"
#include "tools/stats/torch_dump.h"
#include "tools/stats/wants.h"

namespace weft::counted {

namespace {

constexpr uint64_t kSilent = 5 * kSecond;  // behind the beat of others: it beats about each second

bool hasIn(const Process& process, stats::LineState state) {
  return std::any_of(process.comms.begin(), process.comms.end(),
                     [state](const Comm& one) { return one.state == state; });
}

// Another rank was its trouble: it has closed all of its comms, and one of them had ended with an error, or
// it died after that.
bool endedByError(const Process& process) {
  if (!hasIn(process, stats::LineState::failed)) return false;
  return process.state == ProcessState::gone || !hasIn(process, stats::LineState::live);
}

struct Dead {
  const char* kind;
  const char* words;
  const char* advice;
};

// Null: nothing is known against it.
const Dead* troubleOf(const std::vector<Process>& processes, const Process& process, uint64_t latestBeat) {
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
  const bool behind = process.beat + kSilent < latestBeat;
  return behind && !isHeardLater(processes, process, kSilent) ? &kSilentOne : nullptr;
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
    const Dead* trouble = troubleOf(processes, process, latest);
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

// Ranks that want messages of different tags. The one that does so with most peers is in the wrong place; of
// two alike the one that stood still first, where all ranks were seen.
bool judgeOrder(const std::vector<Process>& processes, Verdict* verdict) {
  const std::vector<Mismatch> found = mismatchesOf(processes);
  if (found.empty()) return false;
  std::map<const Process*, size_t> by;
  for (const Mismatch& one : found) {
    by[one.sender]++;
    by[one.receiver]++;
    verdict->evidence.push_back(one.text);
  }
  const auto less = [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second < b.second : movedLast(*a.first) > movedLast(*b.first);
  };
  verdict->kind = "order";
  const auto most = std::max_element(by.begin(), by.end(), less);
  const auto alike = [&](const auto& one) { return one.second == most->second; };
  if (verdict->unseen.empty() || std::count_if(by.begin(), by.end(), alike) == 1)
    verdict->culprit = most->first;
  verdict->since = movedLast(*most->first);
  verdict->advice =
      "ranks are in different collectives: compare what each of them calls at that time "
      "(NCCL_DEBUG_SUBSYS=COLL, "
      "or the flight recorder of the framework)";
  return true;
}

// The waits lead to ranks of which only their peers tell. A rank is named where that is enough: the rest
// of them may wait for each other.
void judgeUnseen(Verdict* verdict) {
  verdict->kind = "unseen";
  if (const Unseen* silent = onlySilent(verdict->unseen)) {
    verdict->peer = silent->name;
    verdict->evidence = silent->said;
    verdict->advice =
        "its peers do not hear it, and that is so of no other: look at that process and its host";
    return;
  }
  for (const Unseen& one : verdict->unseen)
    verdict->evidence.insert(verdict->evidence.end(), one.said.begin(), one.said.end());
}

// The waits lead to a process that waits for nobody as far as its comms found room to be counted.
void judgeHalfSeen(const Process& process, const WaitEnd& end, Verdict* verdict) {
  verdict->kind = "unseen";
  verdict->evidence = end.way;
  verdict->evidence.push_back(
      fmt::format("{} waits for nobody, but {} of its comms found no room to be counted", nameOf(process),
                  process.leftOut));
  verdict->advice = "give WEFT_STATE_DIR a folder with room; look at that process (py-spy dump)";
}

// All wait for each other. In a ring, whose connections carry the same messages one after the other, the one
// that somebody waits for with the lowest number stood still first; else it is the one that moved last the
// longest ago, as far as clocks agree.
void judgeCircle(const std::vector<Process>& processes, const Process* first, Verdict* verdict) {
  if (!first) return;
  if (!verdict->unseen.empty()) return judgeUnseen(verdict);
  const Process* lowest = nullptr;
  uint32_t number = UINT32_MAX;
  for (const Process& process : processes) {
    if (!standsStill(process)) continue;
    for (const Want& want : wantsOf(process)) {
      if (want.k > number) continue;
      const Process* peer = find(processes, want.comm->peer);
      lowest = want.k == number && peer != lowest ? nullptr : peer;
      number = want.k;
    }
  }
  verdict->kind = "circle";
  verdict->culprit = lowest ? lowest : first;
  verdict->since = movedLast(*verdict->culprit);
  verdict->advice =
      "all ranks wait for each other: look first where its threads are and what its GPU runs (py-spy dump, "
      "nvidia-smi), then compare which collective each of them is in";
  for (const Want& want : wantsOf(*verdict->culprit))
    verdict->evidence.push_back(textOf(*verdict->culprit, want));
}

// All live. The waits of those that stand still are followed to their ends: most of them lead to the culprit.
// It waits for nobody, and has not come to the call that others wait for; or it left nothing to be read; or
// all of them wait for each other.
void judgeLate(const std::vector<Process>& processes, Verdict* verdict) {
  std::map<std::pair<const Process*, std::string>, std::pair<size_t, WaitEnd>> ends;
  const Process* first = nullptr;  // that stood still, of a circle
  for (const Process& process : processes) {
    if (endedByError(process) || !standsStill(process)) continue;
    WaitEnd end = follow(processes, process);
    if (end.circle) {
      if (!first || movedLast(process) < movedLast(*first)) first = &process;
      continue;
    }
    const bool moves = end.process && end.process->now <= movedLast(*end.process) + kStill;
    if (moves) continue;
    auto& known = ends[{end.process, end.peer}];
    known.first++;
    if (known.second.way.size() <= end.way.size()) known.second = std::move(end);
  }
  if (ends.empty()) return judgeCircle(processes, first, verdict);
  const auto before = [](const Process* a, const Process* b) {
    return a && b ? movedLast(*a) > movedLast(*b) : b != nullptr;
  };
  const auto most = std::max_element(ends.begin(), ends.end(), [&](const auto& a, const auto& b) {
    if (a.second.first != b.second.first) return a.second.first < b.second.first;
    return before(a.first.first, b.first.first);
  });
  const WaitEnd& end = most->second.second;
  if (end.process && end.process->leftOut > 0) return judgeHalfSeen(*end.process, end, verdict);
  verdict->culprit = end.process;
  if (end.process) {
    verdict->kind = "late";
    verdict->since = movedLast(*end.process);
    verdict->advice =
        "others wait for it and it waits for nobody: look where its threads are (py-spy dump, gdb), and what "
        "its "
        "GPU runs (nvidia-smi)";
  } else if (!onlyUnseen(verdict->unseen)) {
    judgeUnseen(verdict);
  } else {
    verdict->kind = "unseen";
    verdict->peer = end.peer;
    verdict->advice =
        "others wait for it, and it left no counters in this folder: was WEFT_STATE_DIR the same there, and "
        "was "
        "there room? weft autopsy on its host, or py-spy dump there";
    verdict->evidence = end.way;
  }
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

using Failures = std::vector<std::pair<const Process*, const Comm*>>;

// The connections that ended with an error, in the order of their ends.
Failures failuresOf(const std::vector<Process>& processes) {
  Failures failed;
  for (const Process& process : processes)
    for (const Comm& comm : process.comms)
      if (comm.state == stats::LineState::failed) failed.emplace_back(&process, &comm);
  std::stable_sort(failed.begin(), failed.end(), [](const auto& a, const auto& b) {
    return (a.second->failedAt ? a.second->failedAt : UINT64_MAX) <
           (b.second->failedAt ? b.second->failedAt : UINT64_MAX);
  });
  return failed;
}

// Errors that say by themselves what it was.
bool judgeWords(const Failures& failed, Verdict* verdict) {
  struct Known {
    const char* words;
    const char* kind;
    const char* advice;
  };
  static constexpr Known kKnown[] = {
      {"matching a message: tag", "size",
       "a rank sends more than the other one has room for: compare counts and types of that collective on "
       "both"},
      {"checking a message's bytes", "corrupt",
       "bytes changed on the way: look for errors of that rail and its cable (ethtool -S, perfquery) and of "
       "both hosts' memory (dmesg, edac-util); results since the last checkpoint may be wrong"}};
  for (const auto& [process, comm] : failed)
    for (const Known& known : kKnown) {
      if (comm->reason.find(known.words) == std::string::npos) continue;
      verdict->kind = known.kind;
      verdict->peer = comm->peer;
      verdict->advice = known.advice;
      return true;
    }
  return false;
}

// Nobody is found dead or standing, and there were errors: the peer is named that most processes blame. Where
// several are blamed as often nobody is named, and none of several that were not seen: each may have ended
// for another one's error. The first error is the one that counts, and comes first.
void judgeFailed(const std::vector<Process>& processes, Verdict* verdict) {
  const auto failed = failuresOf(processes);
  if (failed.empty()) return;
  verdict->kind = "failed";
  for (const auto& [process, comm] : failed)
    verdict->evidence.push_back(fmt::format("{}: comm {} {} {} ended with an error{}{}", nameOf(*process),
                                            comm->number, comm->sends ? "to" : "from", comm->peer,
                                            comm->failedAt ? " at " + timeText(comm->failedAt) : "",
                                            comm->reason.empty() ? "" : ": " + comm->reason));
  verdict->since = failed.front().second->failedAt;
  if (judgeWords(failed, verdict)) return;
  verdict->advice =
      "the first of these errors is the one that counts; look at the host of a rank that all name, then at "
      "the "
      "network between them (weft doctor --hosts)";
  const auto by = blamed(processes);
  const auto fewer = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto most = std::max_element(by.begin(), by.end(), fewer);
  const auto alike = [&](const auto& one) { return one.second == most->second; };
  if (std::count_if(by.begin(), by.end(), alike) != 1) return;
  if (find(processes, most->first) || onlyUnseen(verdict->unseen)) verdict->peer = most->first;
}

// Messages move, and some lanes are down: the job is slower than it could be. Those of a connection that has
// carried nothing may still be on their way up.
void judgeRails(const std::vector<Process>& processes, Verdict* verdict) {
  for (const Process& process : processes)
    for (const Comm& comm : process.comms)
      if (comm.state == stats::LineState::live && comm.messages > 0 && comm.lanesUp < comm.lanes)
        verdict->evidence.push_back(fmt::format("{}: {} of {} lanes up to {} on {}", nameOf(process),
                                                comm.lanesUp, comm.lanes, comm.peer, comm.device));
  if (verdict->evidence.empty()) return;
  verdict->kind = "rail";
  verdict->advice =
      "nobody stands still, and rails are down: look at the link of the one that most of them name "
      "(ip -s link, ibstat), and at its switch port";
}

// Evidence beside ours. Where nothing of ours stands still it is all that is known.
void addTorch(std::vector<std::string> findings, Verdict* verdict) {
  if (findings.empty()) return;
  if (verdict->kind == "none") {
    verdict->kind = "torch";
    verdict->advice = "look at the rank that is behind, or that calls something else: py-spy dump there";
  }
  for (std::string& line : findings) verdict->evidence.push_back(std::move(line));
}

std::string headOf(const Verdict& verdict, size_t processes) {
  if (verdict.culprit)
    return fmt::format("verdict: {} ({}), which moved last at {}\n", nameOf(*verdict.culprit), verdict.kind,
                       timeText(verdict.since));
  if (verdict.kind == "torch")
    return "verdict: no message of weft's is to blame, and PyTorch's ranks are in different calls (torch)\n";
  if (verdict.kind == "rail") return "verdict: rails are down (rail), and the job goes on\n";
  if (verdict.kind == "unseen")
    return verdict.peer.empty()
               ? "verdict: these files do not tell (unseen): the waits lead to processes that left nothing "
                 "here\n"
               : fmt::format("verdict: {} (unseen), which left nothing here\n", verdict.peer);
  if (verdict.kind == "order")
    return "verdict: ranks are in different collectives (order), and which of them is wrong is not known\n";
  if (verdict.kind == "size")
    return fmt::format("verdict: sizes that do not match (size), with {}\n", verdict.peer);
  if (verdict.kind == "corrupt")
    return fmt::format("verdict: bytes that are not what was sent (corrupt), with {}\n", verdict.peer);
  if (verdict.kind != "failed")
    return fmt::format("{} processes, and none of them stands still\n", processes);
  return verdict.peer.empty()
             ? "verdict: connections failed (failed), and no rank is to blame by what they left\n"
             : fmt::format("verdict: {} (failed), by what its peers left\n", verdict.peer);
}

std::string textOf(const Verdict& verdict, size_t processes, const std::string& folder) {
  std::string text = headOf(verdict, processes);
  for (const std::string& line : verdict.evidence) text += "  " + line + "\n";
  if (!verdict.advice.empty()) text += "what to do: " + verdict.advice + "\n";
  if (verdict.unseen.empty()) return text;
  text += fmt::format("not seen: {} of {} processes left nothing here: {}\n", verdict.unseen.size(),
                      verdict.unseen.size() + processes, unseenText(verdict.unseen));
  return text + "to see them: " + gatherText(folder) + "\n";
}

std::string jsonTextOf(const Verdict& verdict, const std::vector<Process>& processes) {
  Json ranks = Json::array();
  for (const Process& process : processes)
    ranks.append(Json{{"pid", process.presence.pid},
                      {"place", process.presence.place},
                      {"state", name(process.state)},
                      {"moved_last", secondsOf(movedLast(process))},
                      {"last_beat", secondsOf(process.beat)}});
  Json unseen = Json::array();
  for (const Unseen& one : verdict.unseen)
    unseen.append(Json{{"name", one.name}, {"hostname", one.host}, {"said", Json(one.said)}});
  Json culprit;
  if (verdict.culprit)
    culprit = Json{{"pid", verdict.culprit->presence.pid},
                   {"place", verdict.culprit->presence.place},
                   {"hostname", verdict.culprit->host},
                   {"moved_last", secondsOf(verdict.since)}};
  return Json{{"version", 1},
              {"verdict", verdict.kind},
              {"culprit", culprit},
              {"peer", verdict.peer},
              {"evidence", Json(verdict.evidence)},
              {"advice", verdict.advice},
              {"unseen", unseen},
              {"processes", ranks}}
             .text() +
         "\n";
}

}  // namespace

Verdict judge(const std::vector<Process>& processes) {
  Verdict verdict;
  verdict.kind = "none";
  verdict.unseen = unseenOf(processes);
  if (!judgeDead(processes, &verdict) && !judgeOrder(processes, &verdict)) judgeLate(processes, &verdict);
  if (verdict.kind == "none") judgeFailed(processes, &verdict);
  if (verdict.kind == "none") judgeRails(processes, &verdict);
  if (!verdict.culprit || verdict.kind == "order") return verdict;
  for (std::string& line : evidenceOf(processes, verdict.culprit))
    verdict.evidence.push_back(std::move(line));
  return verdict;
}

int runAutopsy(const AutopsyOptions& options) {
  std::vector<std::string> unread;
  const std::vector<Process> processes = read({options.folder, {}, true}, &unread);
  const std::vector<TorchRank> torch = readTorchDumps(options.folder);
  sayUnread("weft autopsy", unread);
  if (processes.empty() && torch.empty()) {
    if (!unread.empty()) return 1;
    fmt::print(stderr,
               "weft autopsy: there is nothing to read in {}: was it WEFT_STATE_DIR of the job? A job that "
               "ends well takes its files along\n",
               options.folder);
    return 1;
  }
  Verdict verdict = judge(processes);
  addTorch(torchFindings(torch), &verdict);
  const Status shown =
      show(options.json ? jsonTextOf(verdict, processes) : textOf(verdict, processes.size(), options.folder));
  if (shown) return 0;
  fmt::print(stderr, "weft autopsy: {}\n", shown.error().message());
  return 1;
}

}  // namespace weft::counted
