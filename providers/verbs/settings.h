// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>

#include "providers/verbs/address.h"
#include "src/base/config.h"
#include "weft/transport.h"

// The user's settings for every queue pair, in the card's units. An immutable value.
namespace weft::verbs {

struct Settings {
  int gidIndex = -1;      // -1: choose
  int trafficClass = -1;  // -1: the communicator's, else 0
  uint8_t serviceLevel = 0;
  uint8_t timeout = 18;  // 4.096 us times 2 to this power: 1.07 s (ibv_modify_qp(3))
  uint8_t retryCount = 6;
  uint16_t pkeyIndex = 0;
  bool ece = true;
  bool relaxedOrder = true;    // a card's writes may pass each other, where nothing needs their order
  int queuePairs = 1;          // of a lane
  Apart apart = Apart::never;  // ifWanted: large writes go apart from their notifications (adaptive routing)
  uint32_t apartAbove = 8192;  // bytes from which on a write is large
  Milliseconds connectTimeout{20000};
  Milliseconds closeTimeout{2000};
};

// The time of the card's tries with these settings; none where it waits for ever.
CardRetries retriesWith(const Settings& settings);

// SoftRoCE takes 7 retries for "for ever", so such a port (`software`) gets 6 at most.
Settings settingsFrom(const Config& config, bool software, bool ethernet);

}  // namespace weft::verbs
