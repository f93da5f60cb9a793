// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>

#include "tools/perf/results.h"

// Bus bandwidth and latency over size as an SVG document that needs nothing else. Pure; any thread.
namespace weft::perf {

std::string plotDocument(const Results& results);

}  // namespace weft::perf
