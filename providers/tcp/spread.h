// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <span>
#include <string>
#include <vector>

#include "src/base/clock.h"

// How many connections a lane needs where a network limits each flow, as clouds do (EC2: 5 Gbit/s outside a
// placement group). The kernel knows the rate of a flow that had more to send than it could; the card's speed
// divided by it is the number. Where more connections carry no more, something else is the limit, and the
// number stays. A value of its lane's; the Queue's thread.
namespace weft::tcp {

// What the kernel counts of a connection since it stands.
struct FlowCounts {
  uint64_t acked = 0;       // bytes that the peer's kernel has
  uint64_t busyUs = 0;      // there was something to send
  uint64_t peerFullUs = 0;  // of that, the peer's kernel had no room
  bool waits = false;       // more is here than may be sent now
};

// All 0 where the kernel does not say it.
FlowCounts flowCounts(int fd);

class Spread {
 public:
  static constexpr size_t kFirst = 4;  // connections, with the one for small writes

  // `fixed`: the user's number; 0: it follows from what is measured. `speedMbps` 0: unknown.
  Spread(size_t fixed, int speedMbps) : speedMbps_(speedMbps), first_(fixed > 0 ? fixed : kFirst) {
    if (fixed > 0) state_ = State::settled;
  }
  size_t first() const { return first_; }
  bool isDue(TimePoint now) const { return state_ != State::settled && now >= due_; }
  // Of the connections for large writes, always in the same order. The number that there should be in all,
  // the first one included, or 0: as many as there are.
  size_t look(TimePoint now, std::span<const FlowCounts> flows);
  std::string why() const;  // of the last number
  bool settled() const { return state_ == State::settled; }

 private:
  enum class State : uint8_t {
    measuring,  // what a flow carries, and all together
    trying,     // more connections were asked for; what they carry is not known yet
    settled,    // the number stays
  };
  struct Rates {      // in Mb/s
    double flow = 0;  // of the quickest that had to wait; 0: none had to
    double total = 0;
  };
  Rates ratesSince(TimePoint now, std::span<const FlowCounts> flows) const;
  size_t wanted(const Rates& rates, size_t flows) const;

  State state_ = State::measuring;
  int speedMbps_;
  size_t first_;
  TimePoint due_{};
  TimePoint looked_{};
  std::vector<FlowCounts> last_;
  size_t tried_ = 0;  // large writes' connections when more were asked for
  Rates before_;      // what they carried then
};

// In words for `weft info`.
std::string connectionsText(size_t fixed, int speedMbps, size_t most);

}  // namespace weft::tcp
