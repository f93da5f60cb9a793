// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/comm_report.h"

#include <algorithm>

#include "src/base/log.h"

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
