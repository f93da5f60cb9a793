// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>
#include <string_view>

#include "src/tuner/model.h"
#include "weft/result.h"

// Measured numbers of a fabric in a small text file. `weft perf --fit` writes it, WEFT_TUNER_TABLE names it,
// docs/tuner.md has the format. Read at start-up only; any thread.
namespace weft::tuner {

// The rates at which a processor moves bytes.
struct HostRates {
  double sendGBps = 0;     // as the sender of messages
  double receiveGBps = 0;  // as their receiver
  double copyGBps = 0;     // beside the network
  double reduceGBps = 0;   // two sources to one target; bytes of the target
};

// The work of processors for ranks of one host, which share them. All or none of it is measured.
struct HostCosts {
  int processors = 0;       // 0: not measured
  double sendUs = 0;        // of the call that sends a small message
  double receiveUs = 0;     // of the call that finds one
  double testUs = 0;        // of a call that finds nothing
  double lookUs = 0;        // likewise, and the yield behind it
  double stepUs = 0;        // one way between two ranks on two processors
  double sharedStepUs = 0;  // one way between two ranks that share a processor
  HostRates near;           // where the caches hold what is moved
  HostRates far;            // where they hold little of it
};

struct MeasuredTable {
  std::string provider;  // by weft's name: "ofi:efa"
  std::string date;      // "2025-01-31", for people
  int hosts = 0;         // hosts that were measured
  int ranks = 0;
  double stepUs = 0;      // one way of a small message between two processes
  double deviceGBps = 0;  // one way, over one device
  int devices = 0;        // of a node, all its GPUs together, that NCCL uses side by side
  HostCosts host;         // where all ranks were on one; the tuner does not use it
  // For weft plan alone:
  int gpus = 0;         // of a node; 0: not known
  std::string machine;  // by its firmware's name: "p5.48xlarge"; empty: not known
};

// An error names the line and its fault.
Result<MeasuredTable> parseTable(std::string_view text);
Result<MeasuredTable> readTable(const std::string& path);

// The text that parseTable reads. Wrong numbers are not noticed here.
std::string tableText(const MeasuredTable& table);

// `source`: where the table is from. The platform's name tells tables apart, as ranks must use the same one.
Platform platformOf(const MeasuredTable& table, const std::string& source);

}  // namespace weft::tuner
