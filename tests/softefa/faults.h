// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "tests/softefa/wire.h"

namespace softefa {

using Clock = std::chrono::steady_clock;

// What goes wrong on one opened NIC. Decisions about packets are made where they arrive and depend only on
// the seed and on what the packet is - not on when it comes - so that a run with the same traffic has the
// same faults. README.md has the grammar. Guarded by the device's lock.
class Faults {
 public:
  Faults(uint64_t seed, unsigned nic) : seed_(seed), nic_(nic) {}

  // Applies assignments such as "reorder=30 nic1.dead=1", on top of what holds. Nothing is applied when one
  // of them is not understood; `wrong` then names it.
  bool apply(const std::string& assignments, std::string& wrong);

  // When a packet that came now may be seen; nothing when it is lost for ever.
  std::optional<Clock::time_point> release(const PacketHeader& header, Clock::time_point now, bool& lost);
  bool holdsPackets() const;  // false: every release is at once

  bool dead() const { return rules_.dead; }
  // It was given work: true when it dies of that.
  bool diesNow() {
    if (!rules_.dying) return false;
    rules_.dying = false;
    return rules_.dead = true;
  }
  bool scatter() const { return rules_.scatter; }
  bool muted(const Gid& gid) const;

  // The code that this work request is to end with instead of being carried out, 0 for none. Counts the
  // request.
  uint32_t plannedStatus();
  // A request that was to end so is carried out all the same, so much later; 0: it is not.
  std::chrono::microseconds lateness() const { return rules_.late; }
  // The errno that this call is to fail with, 0 for none. Counts the call.
  int plannedFailure(const std::string& call);

 private:
  struct Plan {
    int value = 0;      // completion code or errno
    uint64_t left = 0;  // calls until it applies; 0 when it has
  };
  struct Rules {
    uint64_t reorderPercent = 0, lossPercent = 0;
    std::chrono::microseconds reorderTime{300}, retransmit{2000}, delay{0}, late{0};
    uint64_t bytesPerMicrosecond = 0;  // 0: unlimited
    bool dead = false, dying = false, scatter = false;
    std::set<std::string> muted;
    Plan status;
    std::map<std::string, Plan> failures;
  };

  static bool set(Rules& rules, const std::string& name, const std::string& value);
  static bool setSwitch(Rules& rules, const std::string& name, const std::string& value);
  static bool setPlan(Rules& rules, const std::string& name, const std::string& value);
  uint64_t draw(const PacketHeader& header, uint64_t purpose) const;

  uint64_t seed_;
  unsigned nic_;
  Rules rules_;
  Clock::time_point wireFree_{};  // when the rate limit lets the next packet through
};

}  // namespace softefa
