// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/base/config.h"
#include "src/tuner/model.h"
#include "src/tuner/table_file.h"

// The tuner's task in this process: decided once, when the fabric is known, and the same on all ranks unless
// they differ in a way that ends their connections (see identity). Values; any thread.
namespace weft::tuner {

// Everything the decision is made of, next to our own settings.
struct Surroundings {
  std::string fabric;      // that carries the job; empty: weft's network is not in use
  bool lines128 = false;   // every device promises whole 128-byte lines in order
  std::string machine;     // as the firmware names it; empty: not known
  std::string algorithms;  // NCCL_ALGO, NCCL_PROTO, NCCL_TUNER_PLUGIN; empty: not set
  std::string protocols;
  std::string plugin;
  std::optional<MeasuredTable> table;  // that WEFT_TUNER_TABLE names
  std::string tableFailure;            // why it cannot be read; empty: it was, or none is named
};

// Adds NCCL's variables, read from `lookup`, and the table that is named in the settings.
Surroundings lookAround(const std::string& fabric, bool lines128, const std::string& machine,
                        const Config& config, const Lookup& lookup);

struct Policy {
  bool aside = true;                 // NCCL's table stays as it is
  bool priceOutLl128 = false;        // the fabric does not promise what it needs
  std::optional<Platform> platform;  // whose costs replace NCCL's
  std::vector<std::string> reasons;  // of all that, a sentence each
  std::string complaint;             // about a table that was named and is not used; a line for the log

  // Ranks of a job must agree on this, as different choices would hang them.
  std::string identity() const;
  std::string text() const;  // the reasons in one line
};

Policy decide(const Config& config, const Surroundings& surroundings);

}  // namespace weft::tuner
