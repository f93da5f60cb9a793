// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/cluster_findings.h"

#include "tests/support/catch.h"

namespace weft::perf {

namespace {

constexpr double kLimit = 2;

// Not quite equal costs; pairs within a host cost a tenth.
CostMatrix evenCosts(int size, const std::vector<int>& hosts) {
  CostMatrix costs(size);
  for (int from = 0; from < size; ++from)
    for (int to = 0; to < size; ++to) {
      const bool local = hosts[static_cast<size_t>(from)] == hosts[static_cast<size_t>(to)];
      costs.at(from, to) = (local ? 1 : 10) * (1 + 0.05 * ((from * 7 + to * 3) % 5));
    }
  return costs;
}

std::vector<int> ranksPerHost(int size, int each) {
  std::vector<int> hosts;
  for (int rank = 0; rank < size; ++rank) hosts.push_back(rank / each);
  return hosts;
}

void requireOne(const std::vector<Finding>& found, FindingKind kind, int rank, int receiver = -1) {
  REQUIRE(found.size() == 1);
  REQUIRE(found[0].kind == kind);
  REQUIRE(found[0].rank == rank);
  REQUIRE(found[0].receiver == receiver);
  REQUIRE(found[0].times > kLimit);
}

TEST_CASE("each slow sender, receiver, rank and path is named, and nothing else") {
  for (const int size : {3, 4, 5, 8}) {
    for (const int each : {1, 2}) {
      const auto hosts = ranksPerHost(size, each);
      const CostMatrix even = evenCosts(size, hosts);
      REQUIRE(findSlow(even, hosts, kLimit).empty());
      if (each == 2 && size < 8) continue;  // too few of a kind to say what is typical
      for (int slow = 0; slow < size; ++slow) {
        INFO(size << " ranks, " << each << " a host, rank " << slow);
        CostMatrix sender = even;
        CostMatrix receiver = even;
        CostMatrix both = even;
        CostMatrix path = even;
        for (int other = 0; other < size; ++other) {
          sender.at(slow, other) *= 5;
          receiver.at(other, slow) *= 5;
          both.at(slow, other) *= 5;
          both.at(other, slow) *= 5;
        }
        const int to = (slow + 3) % size == slow ? (slow + 1) % size : (slow + 3) % size;
        path.at(slow, to) *= 5;
        requireOne(findSlow(sender, hosts, kLimit), FindingKind::slowSender, slow);
        requireOne(findSlow(receiver, hosts, kLimit), FindingKind::slowReceiver, slow);
        requireOne(findSlow(both, hosts, kLimit), FindingKind::slowRank, slow);
        requireOne(findSlow(path, hosts, kLimit), FindingKind::badPath, slow, to);
      }
    }
  }
}

TEST_CASE("a path of a slow sender that is much worse still is named as well") {
  const auto hosts = ranksPerHost(5, 1);
  CostMatrix costs = evenCosts(5, hosts);
  for (int other = 0; other < 5; ++other) costs.at(1, other) *= 5;
  costs.at(1, 4) *= 10;
  const auto found = findSlow(costs, hosts, kLimit);
  REQUIRE(found.size() == 2);
  REQUIRE(found[0].kind == FindingKind::slowSender);
  REQUIRE((found[1].kind == FindingKind::badPath && found[1].rank == 1 && found[1].receiver == 4));
}

TEST_CASE("between two ranks only a path can be slow") {
  CostMatrix costs(2);
  costs.at(0, 1) = 1;
  costs.at(1, 0) = 5;
  requireOne(findSlow(costs, {0, 1}, kLimit), FindingKind::badPath, 1, 0);
}

TEST_CASE("what is measured again are the pairs that findings rest on") {
  const auto pairs = pairsOf({{FindingKind::badPath, 3, 1, 5}, {FindingKind::slowSender, 1, -1, 4}}, 4);
  REQUIRE(pairs == std::vector<RankPair>{{0, 1}, {1, 2}, {1, 3}});
  REQUIRE(pairsOf({}, 4).empty());
}

TEST_CASE("between different clocks only the round trip is believed") {
  CostMatrix times(3);
  const double ahead = 1e6;  // rank 2's clock
  times.at(0, 1) = 10;
  times.at(1, 0) = 14;
  times.at(0, 2) = 20 + ahead;
  times.at(2, 0) = 22 - ahead;
  times.at(1, 2) = 30 + ahead;
  times.at(2, 1) = 30 - ahead;
  averageAcrossClocks(&times, {0, 0, 1});
  REQUIRE((times.at(0, 1) == 10 && times.at(1, 0) == 14));
  REQUIRE((times.at(0, 2) == 21 && times.at(2, 0) == 21));
  REQUIRE((times.at(1, 2) == 30 && times.at(2, 1) == 30));
}

}  // namespace

}  // namespace weft::perf
