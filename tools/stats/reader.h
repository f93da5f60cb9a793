// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "src/base/presence.h"
#include "src/stats/layout.h"

// Copies of what processes count, in plain values. A copy is of one moment for each line; lines may be of
// different ones. Times are nanoseconds of CLOCK_REALTIME, spans are nanoseconds.
namespace weft::counted {

struct Request {
  uint64_t number = 0;
  uint64_t posted = 0, told = 0, first = 0, done = 0;  // 0: not yet, or not known; stats::Record says more
  uint32_t tag = 0, k = 0, bytes = 0;
  stats::Way way = stats::Way::none;
};

struct Bucket {
  uint64_t upTo = 0;  // nanoseconds
  uint64_t count = 0;
};

struct Comm {
  uint32_t number = 0;
  bool sends = false;
  stats::LineState state = stats::LineState::unused;
  std::string device, peer;
  uint32_t remote = 0;  // its number at the other end; 0: not known
  stats::PeerState peerState = stats::PeerState::unknown;
  uint64_t failedAt = 0;  // 0: it has not
  std::string reason;     // of the failure
  uint64_t posted = 0, done = 0;
  uint64_t messages = 0, bytes = 0;
  uint64_t busy = 0, waited = 0, waits = 0;  // spans with those that have not ended
  uint64_t waitsSince = 0;                   // 0: no send waits
  uint32_t waitTag = 0, waitK = 0, waitBytes = 0;
  uint32_t lanes = 0, lanesUp = 0;
  bool mayIdle = false;  // a receive that is open says nothing
  uint64_t registrations = 0, segmentsAgain = 0, bytesAgain = 0, lanesLeft = 0, lanesRevived = 0;
  uint64_t checked = 0, corrupt = 0;  // received messages whose bytes were summed; those that differed
  stats::OneSidedSum oneSided;
  std::array<uint64_t, stats::kWays> ways{};
  std::array<uint64_t, stats::kSizeClasses> sizeMessages{}, sizeBytes{};
  std::array<uint64_t, stats::kSizeClasses> sizeTimed{}, sizeTime{};  // those that were timed; nanoseconds
  std::vector<Bucket> latency;    // those with something in them, ascending
  std::vector<Request> requests;  // oldest first; only where they were asked for
  uint64_t inFlight() const { return posted > done ? posted - done : 0; }
  uint64_t quantile(double share) const;  // of the latency; 0: not known
};

struct Process {
  Presence presence;
  std::string host;
  std::string job;    // by its launcher; empty: unknown
  uint32_t user = 0;  // the owner of its counters, by the kernel; the other names are as the process says
  ProcessState state = ProcessState::unknown;
  uint64_t begun = 0, beat = 0, now = 0;  // `now`: when it was read, or its last beat where it is gone
  uint32_t leftOut = 0;
  std::string file;
  std::vector<Comm> comms;
};

// Of a folder that is WEFT_STATE_DIR; of these processes; or, with neither, of all of this host.
struct Where {
  std::string folder;
  std::vector<int64_t> pids;
  bool requests = false;  // also the last requests of each comm
};

// Names of peers, hosts and devices are printable (src/base/printable.h). A file that names a process of
// another user than its own is left out. `unread`: one line for each file of counters that was there and
// could not be read, with why.
std::vector<Process> read(const Where& where, std::vector<std::string>* unread = nullptr);

// Each process once, and each of its comms once: a document of metrics with the same labels twice is refused
// as a whole. A process that runs comes before one that is gone, then the one that was seen last.
std::vector<Process> withoutDoubles(std::vector<Process> processes);

const char* name(stats::Way way);
const char* name(stats::LineState state);
const char* name(ProcessState state);

}  // namespace weft::counted
