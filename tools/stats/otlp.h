// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>
#include <vector>

#include "tools/stats/reader.h"
#include "weft/result.h"

// Metrics for a collector of OpenTelemetry, over HTTP as JSON (OTLP/HTTP). Used by one thread.
namespace weft::counted {

// A resource for each rank has a metric for each of commMetrics(), and that a data point for each device and
// direction; `perComm`: a resource for each process, and a data point for each comm.
std::string otlpText(const std::vector<Process>& processes, bool perComm);

// Sends it once. The URL is http://HOST[:PORT][/PATH], with port 4318 and path /v1/metrics where they are
// left out. Errors say what the collector answered, or that it did not within ten seconds.
Status sendOtlp(const std::string& url, const std::string& body);

}  // namespace weft::counted
