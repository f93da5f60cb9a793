// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>
#include <string_view>

#include "src/tuner/model.h"
#include "weft/result.h"

// Measured numbers of one fabric in a small text file, written by `weft perf --fit` and named by
// WEFT_TUNER_TABLE; docs/tuner.md has the format. Reading is for start-up only; any thread.
namespace weft::tuner {

struct MeasuredTable {
  std::string provider;  // as weft names it: "ofi:efa"
  std::string date;      // "2025-01-31", for people
  int hosts = 0;         // that were measured
  int ranks = 0;
  double stepUs = 0;      // one way of a small message from process to process
  double deviceGBps = 0;  // one way, one device
  int devices = 0;        // of a host, which NCCL uses side by side
};

// An error names the line and what is wrong with it.
Result<MeasuredTable> parseTable(std::string_view text);
Result<MeasuredTable> readTable(const std::string& path);

// The result of parseTable; false numbers are not checked here.
std::string tableText(const MeasuredTable& table);

// `source` is where the table is from. The name tells tables apart: ranks must use the same one.
Platform platformOf(const MeasuredTable& table, const std::string& source);

}  // namespace weft::tuner
