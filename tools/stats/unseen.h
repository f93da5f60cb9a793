// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>
#include <vector>

#include "tools/stats/reader.h"

// Processes that others are connected to and whose counters are not among those read: they ran on a host
// whose folder is not here, or could not write. Of them nothing is known but what their peers left.
namespace weft::counted {

struct Unseen {
  std::string name;               // "rank 2 on node8 pid 4711"
  std::string host;               // "node8"
  bool hostSeen = false;          // other processes of that host are among those read
  bool silent = false;            // a peer does not hear it, and none does
  std::vector<std::string> said;  // by its peers, a line for each connection
};

std::vector<Unseen> unseenOf(const std::vector<Process>& processes);

// The one that may be named because the waits or errors of others lead to it: it alone was not seen, and its
// host's folder is here, so it cannot wait for one that was not seen either. Null: there is none.
const Unseen* onlyUnseen(const std::vector<Unseen>& unseen);

// The one that its peers do not hear, where that is so of it alone. Null: there is none.
const Unseen* onlySilent(const std::vector<Unseen>& unseen);

// Their names, a few of many.
std::string unseenText(const std::vector<Unseen>& unseen);

// How the folders of several hosts become one.
std::string gatherText(const std::string& folder);

// A peer, whose counters are by `later` nanoseconds younger than those of `process`, hears it: the latter are
// an old copy, and it is not silent.
bool isHeardLater(const std::vector<Process>& processes, const Process& process, uint64_t later);

}  // namespace weft::counted
