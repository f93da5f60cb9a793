// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>

#include "src/core/engine.h"

// Peerings whose last comm has closed. They stay for the next connection to that peer, which finds its lanes
// up, but not for ever and not without number.
namespace weft::core {

namespace {

void endIdle(Peering& peering) {
  peering.end({Ending::By::us, Error(Code::remote, "keeping lanes", "no connection has used them for long")});
}

}  // namespace

// Not while a connection is being made from here: its peer may have answered on the peering that we would
// end, and hears of that only afterwards. Whoever asks us after our goodbye gets a new one.
void Engine::endIdlePeerings() {
  std::vector<Peering*> idle;
  for (auto& peering : peerings_) {
    if (!peering || peering->state() != PeeringState::live) continue;
    if (peering->isIdle(now_)) idle.push_back(peering.get());
  }
  if (idle.empty() || connecting > 0) return;
  const auto longer = [](const Peering* a, const Peering* b) { return a->idleSince() < b->idleSince(); };
  std::sort(idle.begin(), idle.end(), longer);
  const auto most = static_cast<size_t>(options_.config->idlePeers);
  size_t left = idle.size();
  for (Peering* peering : idle) {
    if (left <= most && now_ - peering->idleSince() < options_.config->idleTime) break;
    endIdle(*peering);
    left--;
  }
  cleanUpPeerings();
}

}  // namespace weft::core
