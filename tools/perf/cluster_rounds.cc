// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/cluster_rounds.h"

#include <algorithm>
#include <map>
#include <utility>

namespace weft::perf {

namespace {

// A round-robin tournament of an even number of hosts: in each of its turns every host meets one other. 0 is
// the turn in which each is with itself.
int turnOf(int a, int b, int hosts) {
  if (a == b) return 0;
  const int even = hosts + hosts % 2;
  const auto [low, high] = std::minmax(a, b);
  return 1 + (high == even - 1 ? 2 * low : low + high) % (even - 1);
}

}  // namespace

std::vector<RankPair> allPairs(int ranks) {
  std::vector<RankPair> pairs;
  for (int a = 0; a < ranks; ++a)
    for (int b = a + 1; b < ranks; ++b) pairs.push_back({a, b});
  return pairs;
}

// Two hosts that meet have a pair of ranks in each of the rounds of their turn.
std::vector<Round> roundsOf(const std::vector<RankPair>& pairs, const std::vector<int>& hosts) {
  const int count = hosts.empty() ? 0 : 1 + *std::max_element(hosts.begin(), hosts.end());
  std::map<std::pair<int, int>, int> met;  // how many pairs of two hosts have their round
  std::map<std::pair<int, int>, Round> rounds;
  for (const RankPair& pair : pairs) {
    const int first = hosts[static_cast<size_t>(pair.first)];
    const int second = hosts[static_cast<size_t>(pair.second)];
    const int number = met[std::minmax(first, second)]++;
    rounds[{turnOf(first, second, count), number}].push_back(pair);
  }
  std::vector<Round> ordered;
  for (auto& [key, round] : rounds) ordered.push_back(std::move(round));
  return ordered;
}

}  // namespace weft::perf
