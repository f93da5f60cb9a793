// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/comm_report.h"

#include <algorithm>
#include <unistd.h>

#include "src/base/log.h"
#include "src/base/process.h"

namespace weft::core {

namespace {

constexpr size_t kMostTagsNamed = 4;

long long secondsOf(Nanoseconds time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time).count();
}

}  // namespace

// For the log:

std::string unmatchedText(const CommReport& comm) {
  if (comm.unmatched.empty()) return {};
  std::string tags;
  for (size_t i = 0; i < std::min(comm.unmatched.size(), kMostTagsNamed); i++)
    tags += format("%s%u", i > 0 ? ", " : "", comm.unmatched[i].tag);
  if (comm.unmatched.size() > kMostTagsNamed) tags += ", ...";
  return (comm.sends ? "the peer waits for tag " : "here is a message that nobody receives, with tag ") +
         tags;
}

std::string waitText(const CommReport& comm, const Wait& wait) {
  return format("%s with tag %u of %s%llu bytes on comm %u %s %s (message %u of the tag%s): %s",
                comm.sends ? "send" : "receive", wait.tag, comm.sends ? "" : "up to ",
                static_cast<unsigned long long>(wait.bytes), comm.number, comm.sends ? "to" : "from",
                comm.peer.c_str(), wait.k,
                wait.requests > 1 ? format(", %zu posted", wait.requests).c_str() : "", wait.why) +
         (comm.answers ? "" : ", and its process does not answer");
}

// The culprit:

namespace {

const char* stoppedText(ProcessState state) {
  switch (state) {
    case ProcessState::stopped:
      return "is stopped; next: kill -CONT PID lets it go on";
    case ProcessState::traced:
      return "is held by a debugger; next: detach the debugger";
    case ProcessState::gone:
      return "is not running any more; next: read the end of its output, and dmesg of this host";
    case ProcessState::waitsInKernel:
      return "waits inside the kernel; next: cat /proc/PID/stack says for what, mostly a disk or a file "
             "server";
    case ProcessState::runs:
    case ProcessState::unknown:
      break;
  }
  return nullptr;
}

std::string pathText(const CommReport& comm, const Wait& wait) {
  return format(
      "the path to %s is silent: message %u of tag %u has left there, rail %s, %zu of %zu lanes up; "
      "next: ip -s link, the port's counters, and weft doctor --hosts",
      comm.peer.c_str(), wait.k, wait.tag, comm.rails.c_str(), comm.lanesUp, comm.lanes);
}

std::string orderText(const CommReport& comm, const Wait& wait) {
  return format(
      "this rank and %s are in different collectives: message %u of tag %u is wanted here, and %s; "
      "next: compare the calls of both with NCCL_DEBUG_SUBSYS=COLL",
      comm.peer.c_str(), wait.k, wait.tag, unmatchedText(comm).c_str());
}

// The peer waits itself.
std::string chainText(const CommReport& comm, const Wait& wait) {
  const std::string& name = comm.waitsFor.name;
  if (name.starts_with(placeName() + " pid " + std::to_string(::getpid()) + " "))
    return format(
        "this rank: the waits lead here, also that of %s; next: py-spy dump --pid %d, and what its GPU "
        "runs (nvidia-smi)",
        comm.peer.c_str(), static_cast<int>(::getpid()));
  if (name == comm.peer)
    return format(
        "%s is late: the waits lead there, its own too, and it has not %s message %u of tag %u; next: "
        "py-spy dump --pid PID there, and weft autopsy FOLDER",
        name.c_str(), comm.sends ? "told of a receive for" : "sent", wait.k, wait.tag);
  if (comm.waitsFor.isBefore(wait.k))
    return format(
        "%s: the waits lead there, also that of %s; next: its own warnings, py-spy dump --pid PID there, "
        "and weft autopsy FOLDER",
        name.c_str(), comm.peer.c_str());
  return format(
      "%s has not %s it, and waits itself for %s; next: the warnings of both, py-spy dump --pid PID "
      "there, and weft autopsy FOLDER",
      comm.peer.c_str(), comm.sends ? "received" : "sent", name.c_str());
}

}  // namespace

std::string verdictText(const CommReport& comm, const Wait& wait) {
  if (const char* stopped = stoppedText(stateOf(Presence::ofKey(comm.process))))
    return comm.peer + " " + stopped;
  if (!comm.answers)
    return comm.peer +
           " does not answer; next: cat /proc/PID/status on its host, kill -CONT PID if it is "
           "stopped";
  if (wait.side == Side::path) return pathText(comm, wait);
  if (!comm.unmatched.empty()) return orderText(comm, wait);
  if (wait.side != Side::peer)
    return format("nobody yet: the next step is that of weft on %s; next: weft state FOLDER on both hosts",
                  wait.side == Side::here ? "this host" : comm.peer.c_str());
  if (!comm.waitsFor.name.empty()) return chainText(comm, wait);
  return format(
      "%s is late: its process answers, and it has not %s message %u of tag %u (rail %s, %zu of %zu "
      "lanes up); next: py-spy dump --pid PID there, and weft autopsy FOLDER",
      comm.peer.c_str(), comm.sends ? "told of a receive for" : "sent", wait.k, wait.tag, comm.rails.c_str(),
      comm.lanesUp, comm.lanes);
}

namespace {

// The first look at a wait comes up to a second after its begin.
std::string ageText(const Wait& wait, TimePoint now) {
  const long long seconds = wait.since == TimePoint{} ? 0 : secondsOf(now - wait.since);
  return seconds == 0 ? "less than 1 s" : format("%lld s", seconds);
}

}  // namespace

std::string stateText(const CommReport& comm, TimePoint now) {
  std::string text = format("  comm %u %s %s: %s, %llu messages so far", comm.number,
                            comm.sends ? "sends to" : "receives from", comm.peer.c_str(), comm.life.c_str(),
                            static_cast<unsigned long long>(comm.messages));
  if (comm.sends) text += format(", %zu on the fabric", comm.inFlight);
  text += "\n";
  for (const Wait& wait : comm.waits)
    text += format("    waits for %s: %s\n", ageText(wait, now).c_str(), waitText(comm, wait).c_str());
  for (const Unmatched& one : comm.unmatched)
    text += format(comm.sends ? "    the peer waits for tag %u: %zu receives\n"
                              : "    nobody receives tag %u: %zu messages are here\n",
                   one.tag, one.count);
  return text;
}

}  // namespace weft::core
