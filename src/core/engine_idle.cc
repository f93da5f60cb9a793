// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>

#include "src/core/engine.h"

// Peerings without comms. Where the last one has closed they stay for the next connection to that peer, which
// finds their lanes up, but not for ever and not without number. Where the first one was given up before the
// lanes were up, they end when a connection would have been given up, too: the peer may be gone from its
// half.
namespace weft::core {

namespace {

void endIdle(Peering& peering, const char* why) {
  peering.end({Ending::By::us, Error(Code::remote, "keeping lanes", why)});
}

}  // namespace

// Not while a connection is being made from here: its peer may have answered on the peering that we would
// end, and hears of that only afterwards. Whoever asks us after our goodbye gets a new one.
void Engine::endIdlePeerings() {
  cleanUpPeerings();  // the peer may have ended some
  std::vector<Peering*> idle, halfMade;
  for (auto& peering : peerings_) {
    if (!peering || peering->halted() || !peering->isIdle(now_)) continue;
    (peering->stage() == Stage::open ? idle : halfMade).push_back(peering.get());
  }
  if (connecting.holds(now_) || (idle.empty() && halfMade.empty())) return;
  for (Peering* peering : halfMade) {
    if (now_ - peering->idleSince() < options_.config->connectTimeout) continue;
    endIdle(*peering, "the connection that they were for was given up");
  }
  const auto longer = [](const Peering* a, const Peering* b) { return a->idleSince() < b->idleSince(); };
  std::stable_sort(idle.begin(), idle.end(), longer);
  const auto most = static_cast<size_t>(options_.config->idlePeers);
  size_t left = idle.size();
  for (Peering* peering : idle) {
    if (left <= most && now_ - peering->idleSince() < options_.config->idleTime) break;
    endIdle(*peering, "no connection has used them for long");
    left--;
  }
  cleanUpPeerings();
}

}  // namespace weft::core
