// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>

#include "tools/sim/simulation.h"

// The findings of a simulation as text and as JSON: `weft perf`'s table, marked as simulated. Pure functions;
// any thread.
namespace weft::sim {

std::string headerText(const Setup& setup);
std::string rowsText(const Setup& setup, const Outcome& outcome);
std::string connectionsText(const Setup& setup, const Outcome& outcome);
std::string jsonOf(const Setup& setup, const Outcome& outcome);
// The table that WEFT_TUNER_TABLE and `weft plan --cluster` read.
std::string fitText(const Setup& setup, const OneWay& way);

}  // namespace weft::sim
