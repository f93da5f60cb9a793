// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>

#include "tools/json/json.h"
#include "tools/trace/show/summary.h"

// A trace for people and for programs. Pure; any thread.
namespace weft::trace {

// "isend comm 3 request 17 ..., 4096 B of memory 2 at 0, tag 1"; without time and thread.
std::string describe(const Event& event);

// Each event is a line.
std::string eventsText(const Trace& trace);
std::string summaryText(const Trace& trace);

Json eventsJson(const Trace& trace);
Json summaryJson(const Trace& trace);

}  // namespace weft::trace
