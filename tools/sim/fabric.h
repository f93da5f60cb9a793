// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>
#include <vector>

#include "src/tuner/table_file.h"
#include "weft/result.h"

// A network as a simulation has it: what a rank's cards and processor take for a message. Times in
// microseconds, rates in GB/s (1e9 bytes). Plain values; any thread.
namespace weft::sim {

// The provider that drives the cards, as far as the protocol goes other ways over it.
enum class Driver : uint8_t { verbs, efa, tcp };

struct Fabric {
  std::string name;
  std::string source;  // of the numbers
  Driver driver = Driver::verbs;
  int rails = 1;          // cards of a rank
  int ranksPerNode = 8;   // of a real node, each a GPU; 0: not known. A simulated rank has a host of its own
  std::string machine;    // the real node, by its firmware's name; empty: any
  double railGBps = 0;    // of each, in each direction
  double latencyUs = 0;   // from card to card
  double workUs = 0;      // that a card takes for each write, beside its bytes
  double messageUs = 0;   // that a processor takes for each message, at either end
  double callUs = 0.05;   // for a call that posts or tests
  tuner::HostCosts host;  // where all ranks are on one host, whose processors also move and reduce all bytes

  bool oneHost() const { return host.far.sendGBps > 0; }  // all ranks are on one
  int speedMbps() const;
  int eagerBytes() const;  // of a message that leaves before it is asked for
};

// The names that readFabric knows, in the order in which they are shown.
const std::vector<Fabric>& knownFabrics();

// The fabric of that name, or of a table that `weft perf --fit` wrote. An error says what is wrong in one
// line.
Result<Fabric> readFabric(const std::string& name);

}  // namespace weft::sim
