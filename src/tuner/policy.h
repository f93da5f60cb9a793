// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/base/config.h"
#include "src/tuner/model.h"
#include "src/tuner/table_file.h"

// The tuner's task in this process. It is decided once, when the fabric is known. It is the same on all
// ranks, or they differ in a way that ends their connections (identity()). Values; any thread.
namespace weft::tuner {

// The facts that decide, beside our own settings.
struct Surroundings {
  std::string fabric;      // the fabric that carries the job; empty: weft's network is not in use
  bool lines128 = false;   // every device promises whole 128-byte lines in order
  std::string machine;     // by its firmware's name; empty: unknown
  std::string algorithms;  // NCCL_ALGO, NCCL_PROTO, NCCL_TUNER_PLUGIN; empty: unset
  std::string protocols;
  std::string plugin;
  std::optional<MeasuredTable> table;  // the table of WEFT_TUNER_TABLE
  std::string tableFailure;            // why the table cannot be read; empty: it was read, or none is named
};

// Adds NCCL's variables, read by `lookup`, and the table that the settings name.
Surroundings lookAround(const std::string& fabric, bool lines128, const std::string& machine,
                        const Config& config, const Lookup& lookup);

// The decision, with its reasons.
struct Policy {
  bool aside = true;                 // NCCL's table of costs stays as it is
  bool priceOutLl128 = false;        // the fabric does not promise what LL128 needs
  std::optional<Platform> platform;  // the platform whose costs replace NCCL's
  std::vector<std::string> reasons;  // for all of that, a sentence each
  std::string complaint;             // about a table that was named and is not used; a line for the log

  // Ranks of a job have to agree on this text: different choices would hang them.
  std::string identity() const;
  std::string text() const;  // the reasons in one line
};

Policy decide(const Config& config, const Surroundings& surroundings);

}  // namespace weft::tuner
