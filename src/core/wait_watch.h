// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/core/comm_report.h"
#include "src/core/standing.h"

// Says once, in the log, what an engine's comms wait for when that takes longer than it ever did
// (standing.h), or than WEFT_WAIT_WARN, and who is late: a receive that nobody sends to is no error, and for
// ever is how a job hangs whose ranks call different things. Where a peer waits for this end, and this end
// for nobody, it says that. The same look keeps since when each comm waits, which an operator may ask for at
// any time; so it is also done where WEFT_WAIT_WARN is 0. Owned by the Engine; used only by the thread that
// has entered it.
namespace weft::core {

class WaitWatch {
 public:
  // A look, step by step: whether it is time for one; the look, which the comms fill with what they wait for;
  // who is at fault as far as is known here; and the warning, where the step before it says that one is due.
  bool begins(TimePoint now, Milliseconds said);  // said: WEFT_WAIT_WARN
  WaitLook look(TimePoint now) const;
  Culprit judge(WaitLook* look) const;
  bool mustWarn(const WaitLook& look, Milliseconds said);
  static void warn(const std::string& device, const std::vector<CommReport>& comms, const WaitLook& look);

  // A connection with that peer has ended with an error: what is awaited from now on may follow from that.
  void noteFailure(const std::string& peer, TimePoint now) {
    if (now - failedAt_ < kRemembered && !failed_.empty()) return;
    failed_ = peer;
    failedAt_ = now;
  }
  void lookSoon() { lookedAt_ = TimePoint{}; }
  uint32_t warnings() const { return warnings_.load(std::memory_order_relaxed); }  // so far; any thread

 private:
  static void warnOfPeers(const std::string& device, const std::vector<CommReport>& comms,
                          const WaitLook& look);
  static void warnOfUs(const std::string& device, const std::vector<CommReport>& comms, const WaitLook& look);

  static constexpr Milliseconds kRemembered{60'000};

  std::string failed_;  // the peer of the connection that ended first; empty: none did
  TimePoint failedAt_{};
  TimePoint lookedAt_{};
  // What has waited since before this is known: others of the same halt are not told one by one.
  TimePoint toldUpTo_{};
  bool halted_ = false;  // the last warning still holds
  std::atomic<uint32_t> warnings_{0};
};

}  // namespace weft::core
