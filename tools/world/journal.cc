// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/world/journal.h"

#include <unistd.h>
#include <utility>

#include "src/base/fnv.h"
#include "src/base/log.h"

namespace weft::world {

namespace {

std::string nameOf(int rank) {
  return rank < 0 ? std::string("the world") : "rank " + std::to_string(rank);
}

double inMilliseconds(TimePoint when) {
  return static_cast<double>(when.time_since_epoch().count()) / 1e6;
}

// A failure of shared memory names this process, whose number is another one each time.
std::string withoutOwnNumber(std::string words) {
  for (const char* before : {"process ", "/proc/"}) {
    const std::string named = before + std::to_string(::getpid());
    for (size_t at = 0; (at = words.find(named, at)) != std::string::npos;)
      words.replace(at, named.size(), before);
  }
  return words;
}

}  // namespace

void Journal::note(TimePoint now, int rank, std::string words) {
  mix(fnv1a(withoutOwnNumber(words)));
  mix(static_cast<uint64_t>(now.time_since_epoch().count()));
  remark(now, rank, std::move(words));
}

void Journal::remark(TimePoint now, int rank, std::string words) {
  auto& events = byRank_[rank];
  events.push_back({now, ++events_, std::move(words)});
  if (events.size() > kept_) events.pop_front();
}

std::string Journal::text() const {
  std::string text;
  for (const auto& [rank, events] : byRank_) {
    text += nameOf(rank) + ":\n";
    for (const Event& event : events)
      text += format("  %12.6f ms  %s\n", inMilliseconds(event.when), event.words.c_str());
  }
  return text;
}

std::string Journal::whole() const {
  std::map<uint64_t, std::pair<int, const Event*>> all;
  for (const auto& [rank, events] : byRank_)
    for (const Event& event : events) all[event.number] = {rank, &event};
  std::string text;
  for (const auto& [number, entry] : all)
    text += format("%12.6f ms  %-9s  %s\n", inMilliseconds(entry.second->when), nameOf(entry.first).c_str(),
                   entry.second->words.c_str());
  return text;
}

}  // namespace weft::world
