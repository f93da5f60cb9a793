// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/core/window.h"
#include "src/mem/region.h"
#include "src/stats/profile.h"
#include "src/stats/stats_file.h"
#include "weft/transport.h"

// What an Engine is made of, and what it counts. Plain values.
namespace weft::core {

// Counted, never acted upon: what a healthy fabric does not show.
struct EngineCounters {
  uint64_t segmentsIn = 0, eagerIn = 0, eagerOut = 0, ctsOut = 0, ctsWrites = 0;
  uint64_t directOut = 0, directIn = 0, directEarly = 0;  // early: before its receive was posted
  uint64_t staleNotes = 0;                                // a slot or generation that is not waiting
  uint64_t duplicateNotes = 0;                            // a segment that had arrived
  uint64_t foreignNotes = 0;                              // nothing of ours decodes from it
  uint64_t crossedCts = 0;                                // CTS an eager message overtook
  uint64_t lanesLeft = 0, lanesRevived = 0;
  uint64_t segmentsAgain = 0, bytesAgain = 0, eagerAgain = 0, ctsAgain = 0;  // after a lane was left
};

struct RailUse {
  std::shared_ptr<Device> device;
  std::unique_ptr<Queue> queue;
};

struct EngineOptions {
  const Config* config = nullptr;  // outlives the engine
  const Clock* clock = nullptr;    // likewise
  std::shared_ptr<mem::RegionCache> regions;
  std::vector<std::shared_ptr<Device>> devices;  // one a rail
  std::shared_ptr<Device> local;  // for peers in shared memory, and behind the rails in `regions`; null: none
  WindowPool* windows = nullptr;  // of the process, outlives the engine; null: no direct messages
  stats::StatsFile* stats = nullptr;  // of the process, outlives the engine; null: nothing is counted there
  stats::RailSums* rails = nullptr;   // likewise, for a profile
  std::string deviceName;
  int trafficClass = -1;
  QueueDepths depths{4096, 8192, -1};
};

}  // namespace weft::core
