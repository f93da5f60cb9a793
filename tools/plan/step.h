// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <algorithm>

#include "tools/plan/job.h"

// The event loop of one step: the buckets or layers of a job, one after the other on the network, beside the
// computing (E6, E9). Pure functions; any thread.
namespace weft::plan {

// Microseconds.
struct Step {
  double totalUs = 0;
  double computeUs = 0;    // without communication
  double contendedUs = 0;  // what the computing loses to it (kappa)
  double exposedUs = 0;    // communication that nothing hides
  Cost communication;      // all of it
  double hiddenUs() const { return std::max(0.0, communication.us() - exposedUs); }
};

// `slowest` is the computing time of the slowest rank as a multiple of the mean.
Step stepOf(const Job& job, const Cluster& cluster, double gpus, double slowest);

}  // namespace weft::plan
