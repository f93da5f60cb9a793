// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/plan/job.h"

// A job out of the traces of its ranks (docs/trace.md). Pure but for reading files; any thread.
namespace weft::plan {

constexpr double kPauseUs = 200;  // that parts two bursts

// Microseconds from the first post of the trace.
struct Message {
  bool sent = false;        // or received
  uint64_t connection = 0;  // the same at both ends
  double postUs = 0;
  double doneUs = 0;
  double bytes = 0;
};

// The sends of a rank between two pauses.
struct Burst {
  double beginUs = 0;
  double endUs = 0;
  double messages = 0;
  double bytes = 0;
};

struct RankTraffic {
  std::vector<Message> messages;  // by the time of their posts
  std::vector<Burst> bursts;
  double sentMessages = 0;
  double sentBytes = 0;
  double receivedMessages = 0;
  double receivedBytes = 0;
};

// True for a folder, and for a file that is called NAME.trace.
bool isRecording(const std::string& path);

// Of a file, or of each trace of a folder, by name. An error names the file.
Result<std::vector<RankTraffic>> readTraffic(const std::string& path);

// The time of all messages without any computing between them, as `weft perf --replay` repeats them: that of
// the busiest direction of a rank, whose messages follow each other on its rails.
Cost costOf(const Network& network, const std::vector<RankTraffic>& ranks);

// A step is the whole recording of the first rank. A burst is a bucket of the bytes whose all-reduce over so
// many ranks sends what was sent, and is ready when it began, on a clock that stands still while messages
// move.
Result<Job> jobOf(const std::string& path, const std::vector<RankTraffic>& ranks);

}  // namespace weft::plan
