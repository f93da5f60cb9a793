// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "src/base/clock.h"
#include "src/control/hub.h"
#include "src/core/ending.h"

// What ends with one peer ends on many comms, peerings and engines within a moment. The log gets the reason
// once a peer, as a warning, and a count of what follows: NCCL keeps the last warning for its user.
namespace weft::core {

// The same reason for the same peer is said again after kSaidAgainAfter. Any thread.
inline constexpr Milliseconds kSaidAgainAfter{10'000};
// A peer that ends a connection so soon after another peer was lost here has lost that one as well, most
// likely: the warning names both, so that nobody takes the one that closed for the cause.
inline constexpr Milliseconds kFollowsLoss{30'000};
[[gnu::cold]] void logEnding(const control::PeerRef& peer, size_t comms, const Ending& ending, TimePoint now);
// For a process that plays one job after another: what was said before was of other peers at other times.
void forgetEndings();

}  // namespace weft::core
