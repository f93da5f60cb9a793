// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/stats/wants.h"

#include <algorithm>
#include <ctime>
#include <optional>

#include <fmt/format.h>

namespace weft::counted {

double secondsOf(uint64_t span) {
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

uint64_t movedLast(const Process& process) {
  uint64_t last = process.begun;
  for (const Comm& comm : process.comms)
    for (const Request& request : comm.requests) last = std::max({last, request.posted, request.done});
  return last;
}

namespace {

bool counts(const Comm& comm) {
  return comm.state == stats::LineState::live || comm.state == stats::LineState::failed;
}

// Receives that stand for one-sided operations wait for nobody: their peer may have nothing to say.
void add(std::vector<Want>* wants, const Comm& comm) {
  if (!counts(comm) || (comm.mayIdle && !comm.sends)) return;
  if (comm.waitsSince != 0)
    wants->push_back({&comm, comm.waitsSince, comm.waitTag, comm.waitK, comm.waitBytes, false});
  const auto open = std::find_if(comm.requests.begin(), comm.requests.end(),
                                 [](const Request& request) { return request.done == 0; });
  if (open == comm.requests.end()) return;
  wants->push_back({&comm, open->posted, open->tag, open->k, open->bytes, open->first != 0});
}

}  // namespace

std::vector<Want> wantsOf(const Process& process) {
  std::vector<Want> wants;
  for (const Comm& comm : process.comms) add(&wants, comm);
  return wants;
}

bool standsStill(const Process& process) {
  if (process.now <= movedLast(process) + kStill) return false;
  const std::vector<Want> wants = wantsOf(process);
  return std::any_of(wants.begin(), wants.end(),
                     [&](const Want& want) { return process.now > want.since + kStill; });
}

std::string textOf(const Process& process, const Want& want) {
  return fmt::format(
      "{} waits {:.1f} s {} {}: tag {}, message {}, {} bytes{}, comm {} on {}, {} of {} lanes up",
      nameOf(process), secondsOf(process.now > want.since ? process.now - want.since : 0),
      want.comm->sends ? "to send to" : "to receive from", want.comm->peer, want.tag, want.k, want.bytes,
      want.begun ? ", some of it is here" : "", want.comm->number, want.comm->device, want.comm->lanesUp,
      want.comm->lanes);
}

bool names(const std::string& peer, const Process& process) {
  return (peer + " ").find(nameOf(process) + " ") != std::string::npos;
}

const Process* find(const std::vector<Process>& processes, const std::string& peer) {
  const auto found = std::find_if(processes.begin(), processes.end(),
                                  [&](const Process& process) { return names(peer, process); });
  return found == processes.end() ? nullptr : &*found;
}

namespace {

// The comm at the other end of `comm`, which is of `process`; at its peer.
const Comm* otherEnd(const Process& process, const Comm& comm, const Process& peer) {
  const auto isIt = [&](const Comm& other) {
    return other.sends != comm.sends && counts(other) && other.number == comm.remote &&
           other.remote == comm.number && names(other.peer, process);
  };
  const auto found = std::find_if(peer.comms.begin(), peer.comms.end(), isIt);
  return found == peer.comms.end() ? nullptr : &*found;
}

// The last ones are looked for most.
const Request* messageOf(const Comm& comm, uint32_t tag, uint32_t k) {
  const auto found = std::find_if(comm.requests.rbegin(), comm.requests.rend(), [&](const Request& request) {
    return request.tag == tag && request.k == k;
  });
  return found == comm.requests.rend() ? nullptr : &*found;
}

// Receives that are posted ahead:

constexpr size_t kEnough = 4;   // messages, for a habit to be one
constexpr size_t kLooked = 32;  // at so many of the last

// True: the last messages of `sends` had each left before another one came, that which by its number is as
// far from it as `wanted` is from `owed`. Both comms are of one process, so its clock orders them.
bool sentBefore(const Comm& sends, const Want& owed, const Want& wanted) {
  size_t known = 0;
  const size_t last = std::min(kLooked, sends.requests.size());
  for (auto sent = sends.requests.end() - static_cast<std::ptrdiff_t>(last); sent != sends.requests.end();
       ++sent) {
    if (sent->tag != owed.tag) continue;
    const Request* came = messageOf(*wanted.comm, wanted.tag, sent->k + (wanted.k - owed.k));
    if (!came || came->done == 0) continue;
    if (sent->posted >= came->done) return false;
    known++;
  }
  return known >= kEnough;
}

// The message that the peer waits for is one that the process sends without the one it wants itself, as it
// always did: so it does not wait, it owes. In a tree that is an answer for which nobody has asked yet.
bool owesFirst(const Process& process, const Want& wanted, const Process& peer) {
  if (wanted.comm->sends) return false;
  const std::vector<Want> theirs = wantsOf(peer);
  return std::any_of(theirs.begin(), theirs.end(), [&](const Want& owed) {
    if (owed.comm->sends || !names(owed.comm->peer, process)) return false;
    const Comm* sends = otherEnd(peer, *owed.comm, process);
    return sends && !messageOf(*sends, owed.tag, owed.k) && sentBefore(*sends, owed, wanted);
  });
}

struct Wait {
  Want want;
  const Process* peer;  // null: it left nothing
};

// Always the oldest: the others followed from it. None: the process waits for nobody.
std::optional<Wait> oldestWait(const std::vector<Process>& processes, const Process& process) {
  std::vector<Want> wants = wantsOf(process);
  std::stable_sort(wants.begin(), wants.end(),
                   [](const Want& a, const Want& b) { return a.since < b.since; });
  for (const Want& want : wants) {
    const Process* peer = find(processes, want.comm->peer);
    if (!peer || !owesFirst(process, want, *peer)) return Wait{want, peer};
  }
  return std::nullopt;
}

}  // namespace

WaitEnd follow(const std::vector<Process>& processes, const Process& from) {
  WaitEnd end;
  std::vector<const Process*> passed;
  const Process* at = &from;
  while (true) {
    end.process = at;
    if (std::find(passed.begin(), passed.end(), at) != passed.end()) {
      end.circle = true;
      return end;
    }
    passed.push_back(at);
    const auto wait = oldestWait(processes, *at);
    if (!wait) return end;
    end.way.push_back(textOf(*at, wait->want));
    if (!wait->peer) {
      end.process = nullptr;
      end.peer = wait->want.comm->peer;
      return end;
    }
    at = wait->peer;
  }
}

// Ranks in different collectives:

namespace {

struct Offer {
  uint32_t tag, k;
};

// A message that the sender has for its receiver and the receiver has no receive for: a send that is refused,
// or the last one that left by itself.
std::optional<Offer> unreceived(const Comm& sends, const Comm& receives) {
  const auto isNew = [&](uint32_t tag, uint32_t k) { return !messageOf(receives, tag, k); };
  if (sends.waitsSince != 0 && isNew(sends.waitTag, sends.waitK)) return Offer{sends.waitTag, sends.waitK};
  if (sends.requests.empty()) return std::nullopt;
  const Request& last = sends.requests.back();
  if (isNew(last.tag, last.k)) return Offer{last.tag, last.k};
  return std::nullopt;
}

// The oldest receive that stands, where no receive that stands is of that tag.
const Request* wantedInstead(const Comm& receives, uint32_t tag) {
  const Request* oldest = nullptr;
  for (const Request& request : receives.requests) {
    if (request.done != 0) continue;
    if (request.tag == tag) return nullptr;
    if (!oldest) oldest = &request;
  }
  return oldest;
}

}  // namespace

std::vector<Mismatch> mismatchesOf(const std::vector<Process>& processes) {
  std::vector<Mismatch> found;
  for (const Process& sender : processes) {
    for (const Comm& sends : sender.comms) {
      if (!sends.sends || !counts(sends)) continue;
      const Process* receiver = find(processes, sends.peer);
      const Comm* receives = receiver ? otherEnd(sender, sends, *receiver) : nullptr;
      if (!receives || receives->mayIdle || !standsStill(*receiver)) continue;
      const auto offered = unreceived(sends, *receives);
      const Request* wanted = offered ? wantedInstead(*receives, offered->tag) : nullptr;
      if (!wanted) continue;
      found.push_back(
          {&sender, receiver,
           fmt::format("{} sends message {} of tag {}, and {} waits {:.1f} s for message {} of tag "
                       "{} (comms {} and {} on {})",
                       nameOf(sender), offered->k, offered->tag, nameOf(*receiver),
                       secondsOf(receiver->now - wanted->posted), wanted->k, wanted->tag, sends.number,
                       receives->number, sends.device)});
    }
  }
  return found;
}

}  // namespace weft::counted
