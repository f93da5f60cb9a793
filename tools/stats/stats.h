// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>
#include <vector>

#include "tools/stats/reader.h"
#include "weft/result.h"

// `weft stats`: what processes counted so far, as text, JSON or metrics for Prometheus.
namespace weft::counted {

struct Options {
  std::vector<std::string> where;  // a folder, or process numbers; empty: all processes of this host
  bool json = false;
  bool prometheus = false;
  bool perComm = false;  // metrics of each comm, instead of sums by rank
  std::string textfile;  // a folder for node_exporter's textfile collector; empty: none
  std::string otlp;      // the URL of a collector of OpenTelemetry; empty: none
  double interval = 30;  // seconds between two such files or messages; 0: one, and that is all
};

// A folder, or numbers of processes.
Result<Where> placesOf(const std::vector<std::string>& words);

// To stderr: the first of the files that could not be read, and why.
void sayUnread(const char* tool, const std::vector<std::string>& unread);

// Sums of each rank, device and direction; or of each comm, which are many.
std::string prometheusText(const std::vector<Process>& processes, bool perComm);
std::string jsonText(const std::vector<Process>& processes);

// The exit code: 1 where no process was found.
int runStats(const Options& options);

}  // namespace weft::counted
