// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/base/presence.h"
#include "src/core/standing.h"

// What a comm waits for, in plain values: for the warning about waits that last, and for an operator who asks
// for the state of a process. Filled by who has entered the engine, read anywhere.
namespace weft::core {

// On whose side the next step of a message is.
enum class Side : uint8_t {
  peer,   // its program, or its GPU
  path,   // it is on its way
  here,   // nothing is wanted, or it is about to be told
  other,  // the control link, or credits
};

// The oldest message of one tag that NCCL wants and has not got, or not got rid of.
struct Wait {
  uint32_t tag = 0;
  uint32_t k = 0;  // how many of this tag came before
  uint64_t bytes = 0;
  size_t requests = 1;   // of this tag
  TimePoint since{};     // default: it began after the last look
  TimePoint counted{};   // for the warning; default: none is due
  const char* why = "";  // what has to happen
  Side side = Side::other;
};

// A receive of the peer's that this end could fill, and does not.
struct Asked {
  uint32_t tag = 0;
  uint32_t k = 0;
  TimePoint counted{};
  bool strange = false;  // this end has sent others, and none of that tag
};

// A message or a receive of the other end that has no counterpart here.
struct Unmatched {
  uint32_t tag = 0;
  size_t count = 0;
};

struct CommReport {
  uint32_t number = 0;
  bool sends = false;
  std::string device;
  std::string peer;
  bool answers = true;  // the peer's process
  std::string process;  // its Presence::key(); empty: not known
  Culprit waitsFor;     // as the peer has told
  std::string rails;
  size_t lanes = 0, lanesUp = 0;
  std::string life;       // "live", or how it ended
  uint64_t messages = 0;  // so far
  size_t inFlight = 0;    // sends that a fabric works on
  std::vector<Wait> waits;
  std::vector<Unmatched> unmatched;
  std::vector<Asked> asked;
};

// "receive with tag 7 of at most 65536 bytes on comm 5 from node7 pid 4711 (192.0.2.7), message 0 of the tag:
// the peer has not sent it; there is tag 8, which nobody receives".
std::string waitText(const CommReport& comm, const Wait& wait);
std::string unmatchedText(const CommReport& comm);  // empty: nothing is

// The culprit of the oldest wait, as far as this rank can tell, why, and the next step: "rank 2 on node7 pid
// 4711 (192.0.2.7) is stopped; kill -CONT 4711 there lets it go on".
std::string verdictText(const CommReport& comm, const Wait& wait);

// All of it, some lines.
std::string stateText(const CommReport& comm, TimePoint now);

}  // namespace weft::core
