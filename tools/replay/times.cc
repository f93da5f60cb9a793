// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/replay/times.h"

#include <algorithm>

namespace weft::replay {

namespace {

void addTo(Compared* sum, const Compared& more) {
  sum->replayed += more.replayed;
  sum->recorded += more.recorded;
}

}  // namespace

void Times::add(const Times& other) {
  for (size_t i = 0; i < kinds.size(); ++i) {
    kinds[i].calls += other.kinds[i].calls;
    addTo(&kinds[i].inside, other.kinds[i].inside);
  }
  addTo(&sends, other.sends);
  addTo(&receives, other.receives);
  addTo(&collectives, other.collectives);
  addTo(&oneSided, other.oneSided);
  addTo(&connecting, other.connecting);
  addTo(&notNow, other.notNow);
  addTo(&notNowNanoseconds, other.notNowNanoseconds);
  wall.replayed = std::max(wall.replayed, other.wall.replayed);
  wall.recorded = std::max(wall.recorded, other.wall.recorded);
  messages += other.messages;
  bytes += other.bytes;
  puts += other.puts;
  putBytes += other.putBytes;
  brokenComms += other.brokenComms;
  for (const CommWait& wait : other.top) addWait(wait);
}

void Times::addWait(const CommWait& wait) {
  if (wait.rank < 0) return;
  const auto least = std::min_element(top.begin(), top.end(), [](const CommWait& a, const CommWait& b) {
    return a.nanoseconds.replayed < b.nanoseconds.replayed;
  });
  if (wait.nanoseconds.replayed > least->nanoseconds.replayed || least->rank < 0) *least = wait;
}

}  // namespace weft::replay
