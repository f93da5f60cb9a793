// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <vector>

#include "tools/perf/cluster_findings.h"

// Which pairs of ranks are measured at the same time: no host is in two of them, so that none has to share
// its cards and processors with another. Pure; any thread.
namespace weft::perf {

using Round = std::vector<RankPair>;

// Every pair of `pairs` once. `hosts` says for each rank which one it is on, from 0 on.
std::vector<Round> roundsOf(const std::vector<RankPair>& pairs, const std::vector<int>& hosts);

std::vector<RankPair> allPairs(int ranks);

}  // namespace weft::perf
