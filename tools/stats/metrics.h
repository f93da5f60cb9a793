// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <span>

#include "tools/stats/reader.h"

// The metrics of a comm, or of a sum of comms, that are one number each: the same for Prometheus and
// OpenTelemetry.
namespace weft::counted {

struct Metric {
  const char* name;
  const char* type;  // counter or gauge
  const char* help;
  double (*value)(const Comm&);
  bool oneSided = false;  // of operations that few jobs do
};

std::span<const Metric> commMetrics();

}  // namespace weft::counted
