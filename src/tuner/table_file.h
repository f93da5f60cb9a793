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

struct MeasuredTable {
  std::string provider;  // by weft's name: "ofi:efa"
  std::string date;      // "2025-01-31", for people
  int hosts = 0;         // hosts that were measured
  int ranks = 0;
  double stepUs = 0;      // one way of a small message between two processes
  double deviceGBps = 0;  // one way, over one device
  int devices = 0;        // devices of a host that NCCL uses side by side
};

// An error names the line and its fault.
Result<MeasuredTable> parseTable(std::string_view text);
Result<MeasuredTable> readTable(const std::string& path);

// The text that parseTable reads. Wrong numbers are not noticed here.
std::string tableText(const MeasuredTable& table);

// `source`: where the table is from. The platform's name tells tables apart, as ranks must use the same one.
Platform platformOf(const MeasuredTable& table, const std::string& source);

}  // namespace weft::tuner
