// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/stats/unseen.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "tools/stats/wants.h"

namespace weft::counted {

namespace {

// A peer as others call it, without its address: that differs from one connection to the next.
std::string withoutAddress(const std::string& peer) {
  const size_t pid = peer.find(" pid ");
  return peer.substr(0, pid == std::string::npos ? pid : peer.find(' ', pid + 5));
}

std::string hostOf(const std::string& name) {
  const std::string place = name.substr(0, name.find(" pid "));
  const size_t on = place.rfind(" on ");
  return on == std::string::npos ? place : place.substr(on + 4);
}

const char* words(stats::PeerState state) {
  switch (state) {
    case stats::PeerState::answers:
      return "it answers";
    case stats::PeerState::silent:
      return "it does not answer";
    case stats::PeerState::gone:
      return "it is gone";
    case stats::PeerState::unknown:
      break;
  }
  return "whether it answers is not known";
}

bool isOpen(const Comm& comm) {
  return comm.state == stats::LineState::live || comm.state == stats::LineState::failed;
}

// The word of `process` about the peer of `comm`: the error that ended it, else what it wants of it.
std::string said(const Process& process, const Comm& comm) {
  if (comm.state == stats::LineState::failed)
    return fmt::format("{}: comm {} {} {} ended with an error{}{}", nameOf(process), comm.number,
                       comm.sends ? "to" : "from", comm.peer,
                       comm.failedAt ? " at " + timeText(comm.failedAt) : "",
                       comm.reason.empty() ? "" : ": " + comm.reason);
  for (const Want& want : wantsOf(process))
    if (want.comm == &comm) return fmt::format("{}; {}", textOf(process, want), words(comm.peerState));
  return fmt::format("{} waits for nothing {} {} (comm {}); {}", nameOf(process),
                     comm.sends ? "of what it sends to" : "of", comm.peer, comm.number,
                     words(comm.peerState));
}

struct Word {
  bool heard = false, missed = false;
};

}  // namespace

std::vector<Unseen> unseenOf(const std::vector<Process>& processes) {
  std::set<std::string> seenHosts;
  for (const Process& process : processes) seenHosts.insert(hostOf(nameOf(process)));
  std::map<std::string, std::pair<Unseen, Word>> found;
  for (const Process& process : processes)
    for (const Comm& comm : process.comms) {
      if (!isOpen(comm) || comm.peer.find(" pid ") == std::string::npos || find(processes, comm.peer))
        continue;
      const std::string name = withoutAddress(comm.peer);
      auto& [unseen, word] = found[name];
      unseen.name = name;
      unseen.host = hostOf(name);
      unseen.hostSeen = seenHosts.contains(unseen.host);
      unseen.said.push_back(said(process, comm));
      word.heard |= comm.peerState == stats::PeerState::answers;
      word.missed |= comm.peerState == stats::PeerState::silent;
    }
  std::vector<Unseen> all;
  for (auto& [name, one] : found) {
    one.first.silent = one.second.missed && !one.second.heard;
    all.push_back(std::move(one.first));
  }
  return all;
}

const Unseen* onlyUnseen(const std::vector<Unseen>& unseen) {
  return unseen.size() == 1 && unseen.front().hostSeen ? unseen.data() : nullptr;
}

const Unseen* onlySilent(const std::vector<Unseen>& unseen) {
  const auto isSilent = [](const Unseen& one) { return one.silent; };
  if (std::count_if(unseen.begin(), unseen.end(), isSilent) != 1) return nullptr;
  return &*std::find_if(unseen.begin(), unseen.end(), isSilent);
}

std::string unseenText(const std::vector<Unseen>& unseen) {
  constexpr size_t kMostNamed = 16;
  std::string text;
  for (size_t i = 0; i < std::min(unseen.size(), kMostNamed); i++)
    text += (i == 0 ? "" : ", ") + unseen[i].name;
  if (unseen.size() > kMostNamed) text += fmt::format(" and {} more", unseen.size() - kMostNamed);
  return text;
}

std::string gatherText(const std::string& folder) {
  return fmt::format(
      "bring the folders of all hosts together, at one time on all of them: mkdir SHARED; "
      "srun --ntasks-per-node 1 cp -r {0}/. SHARED, or for each host ssh HOST tar -C {0} -c . | tar -C "
      "SHARED -x; "
      "then weft autopsy SHARED",
      folder.empty() ? "FOLDER" : folder);
}

bool isHeardLater(const std::vector<Process>& processes, const Process& process, uint64_t later) {
  return std::any_of(processes.begin(), processes.end(), [&](const Process& peer) {
    if (peer.beat < process.beat + later) return false;
    return std::any_of(peer.comms.begin(), peer.comms.end(), [&](const Comm& comm) {
      return comm.state == stats::LineState::live && comm.peerState == stats::PeerState::answers &&
             names(comm.peer, process);
    });
  });
}

}  // namespace weft::counted
