// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <vector>

#include "tests/soak/flow.h"
#include "tests/system/driver/end.h"

// One life of a few connections between two ends: made, filled with traffic, closed. Both ends run it with
// the same script, which the hub hands over; what only one of them does (killing, stopping) is the hub's.
// Ends when every comm is done or has failed, never later than its deadlines. One thread a side.
namespace weft::soak {

enum class Incident : uint8_t {
  none,
  abortHub,        // the hub closes everything in the middle
  abortPeer,       // the peer does
  killConnecting,  // the peer is killed while it connects
  killTransfer,    // and while messages are under way
  stop,            // the peer is stopped and goes on
};

// What both sides agree on before; bytes, as it crosses between processes.
struct Script {
  uint64_t seed = 0;
  uint32_t links = 1;  // connections in each direction
  uint32_t after = 0;  // groups received at whoever acts, before the incident
  Incident incident = Incident::none;
  bool last = false;   // the peer's life ends with it
  bool harsh = false;  // the peer breaks its own fabric: errors are to be expected
};

// What came of it, here and there.
struct Outcome {
  bool connected = false;
  uint32_t failed = 0;  // comms
  uint32_t done = 0;
};

class Episode {
 public:
  Episode(Run& run, system::End& end, const Script& script) : run_(run), end_(end), script_(script) {}

  // False: the other process was killed, and nothing more can be agreed with it.
  bool play();

 private:
  bool mine(Incident incident) const { return script_.incident == incident; }
  bool actsHere() const;
  bool connectAll();
  bool connectOne(uint32_t link);
  bool pollEnds(netdriver::Ends* ends, netdriver::Listener* listener, netdriver::Handle* theirs);
  void addFlows(uint32_t link, netdriver::Ends ends);
  bool transfer();
  void act();
  void wake();
  void closeAll();
  void judge(const Outcome& here, const Outcome& there);
  Outcome outcome() const;
  size_t groupsReceived() const;
  bool allOver() const;

  Run& run_;
  system::End& end_;
  const Script script_;
  std::vector<std::unique_ptr<Flow>> flows_;
  std::vector<const RecvFlow*> receivers_;
  bool connected_ = true;
  bool acted_ = false;
  bool aborted_ = false;
  bool killed_ = false;
  std::chrono::steady_clock::time_point stoppedUntil_{};
};

}  // namespace weft::soak
