// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <map>
#include <string>

#include "tools/trace/reader.h"

// The sums of a trace. Pure; any thread.
namespace weft::trace {

// Messages of a power of two of bytes, from there to below the next.
struct SizeClass {
  uint64_t sends = 0;
  uint64_t receives = 0;
  uint64_t sentBytes = 0;
  uint64_t collectives = 0;  // operations handed to the network
  uint64_t oneSided = 0;     // puts and gets
};

struct KindTotals {
  uint64_t calls = 0;
  uint64_t errors = 0;
  uint64_t nanoseconds = 0;  // inside the plugin
};

// Of requests: from the post to the test that said done.
struct Lives {
  uint64_t done = 0;
  uint64_t neverDone = 0;
  uint64_t nanoseconds = 0;
  uint64_t longest = 0;
  uint64_t tests = 0;
};

struct Summary {
  uint64_t nanoseconds = 0;  // from the first call to the last
  size_t threads = 0;
  std::map<Kind, KindTotals> calls;
  std::map<uint64_t, SizeClass> sizes;  // by the lower bound
  std::map<size_t, uint64_t> groups;    // receives by number of messages
  Lives sends;
  Lives receives;
  Lives collectives;
  Lives oneSided;
  uint64_t deepest = 0;  // most requests of one comm at a time
  uint64_t notNow = 0;   // calls that posted nothing, and how long posts waited for that
  uint64_t notNowNanoseconds = 0;
  uint64_t registered = 0;  // most bytes registered at a time
  uint64_t registrationUses = 0;
  uint64_t registrations = 0;
  uint64_t registrationsUsed = 0;  // by a message or more
};

Summary summarize(const Trace& trace);

}  // namespace weft::trace
