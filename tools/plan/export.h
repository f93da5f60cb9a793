// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>
#include <vector>

#include "tools/plan/numbers.h"
#include "tools/plan/trace_job.h"

// Jobs for other simulators: Chakra execution traces (ASTRA-sim) and GOAL schedules (LogGOPSim, ATLAHS). Pure
// functions; any thread.
namespace weft::plan {

// The work of a rank, in the order in which it was begun. An activity waits for those in `after`, by their
// position.
struct Activity {
  enum class Kind { compute, collective, send, receive };
  Kind kind = Kind::compute;
  std::string name;
  double us = 0;     // of computing
  double bytes = 0;  // of the others
  Collective collective = Collective::allReduce;
  size_t peer = 0;  // of a message
  size_t tag = 0;
  std::vector<size_t> after;
};

// A step of the job, alike on all ranks: the passes in pieces that end where a bucket is ready, the buckets'
// collectives in their order, and the optimizer.
std::vector<Activity> activitiesOf(const Job& job);

// The messages of recorded ranks, each list by the time of its posts, computing between the bursts. A trace
// does not name the peers of its rank, but both ends of a connection know the same handle. A connection that
// has only one of its ends here, or more than two, is refused: a trace is missing, or is there twice.
Result<std::vector<std::vector<Activity>>> activitiesOf(const std::string& path,
                                                        const std::vector<RankTraffic>& ranks);

// The bytes of a file NAME.RANK.et: a metadata message and a message for each activity, each after its
// length.
std::string chakraOf(const std::vector<Activity>& activities, size_t rank);

// Collectives become messages of a ring, as GOAL has no others. Times are in nanoseconds, as LogGOPSim's are.
std::string goalOf(const std::vector<std::vector<Activity>>& ranks);

// A round of a ring for each collective operation of an activity list, the same for each of so many ranks.
std::vector<std::vector<Activity>> asMessages(const std::vector<Activity>& activities, size_t ranks);

}  // namespace weft::plan
