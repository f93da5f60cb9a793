// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/cluster_findings.h"

#include <algorithm>
#include <array>

namespace weft::perf {

namespace {

// A direction that is so many times as slow as the other one is the cause of both.
constexpr double kDominates = 4;

// The lower one of two in the middle: among few cells a single slow one must not decide.
double lowerMedian(std::vector<double> values) {
  if (values.empty()) return 1;
  std::sort(values.begin(), values.end());
  return values[(values.size() - 1) / 2];
}

// The lower middle, or among three ranks what one that is slow both ways leaves over: a third of the cells.
double typical(std::vector<double> values, int size) {
  if (values.empty()) return 1;
  std::sort(values.begin(), values.end());
  const size_t good = values.size() * static_cast<size_t>(size - 2) / static_cast<size_t>(size);
  return values[std::min((values.size() - 1) / 2, std::max<size_t>(good, 1) - 1)];
}

template <class F>
void forEachPair(int size, F&& function) {
  for (int from = 0; from < size; ++from)
    for (int to = 0; to < size; ++to)
      if (from != to) function(from, to);
}

// Costs as multiples of what is typical for the kind of pair.
CostMatrix normalise(const CostMatrix& costs, const std::vector<int>& hosts) {
  const auto isLocal = [&](int a, int b) {
    return hosts[static_cast<size_t>(a)] == hosts[static_cast<size_t>(b)];
  };
  std::array<std::vector<double>, 2> values;
  forEachPair(costs.size(),
              [&](int from, int to) { values[isLocal(from, to)].push_back(costs.at(from, to)); });
  const std::array<double, 2> base = {typical(values[0], costs.size()), typical(values[1], costs.size())};
  CostMatrix result(costs.size());
  forEachPair(costs.size(),
              [&](int from, int to) { result.at(from, to) = costs.at(from, to) / base[isLocal(from, to)]; });
  return result;
}

struct Lines {
  std::vector<double> senders;  // by rank: the middle of its row
  std::vector<double> receivers;
};

Lines middles(const CostMatrix& costs) {
  Lines lines;
  for (int rank = 0; rank < costs.size(); ++rank) {
    std::vector<double> row;
    std::vector<double> column;
    for (int other = 0; other < costs.size(); ++other) {
      if (other == rank) continue;
      row.push_back(costs.at(rank, other));
      column.push_back(costs.at(other, rank));
    }
    lines.senders.push_back(lowerMedian(row));
    lines.receivers.push_back(lowerMedian(column));
  }
  return lines;
}

void findLines(const Lines& lines, double limit, std::vector<Finding>* found) {
  for (size_t r = 0; r < lines.senders.size(); ++r) {
    const double sends = lines.senders[r];
    const double receives = lines.receivers[r];
    const int rank = static_cast<int>(r);
    // A slow direction drags the other along a little: a sender's acknowledgements are late, too.
    const bool both = std::max(sends, receives) < kDominates * std::min(sends, receives);
    if (both && sends > limit && receives > limit)
      found->push_back({FindingKind::slowRank, rank, -1, std::max(sends, receives)});
    else if (sends > limit && sends >= receives)
      found->push_back({FindingKind::slowSender, rank, -1, sends});
    else if (receives > limit)
      found->push_back({FindingKind::slowReceiver, rank, -1, receives});
  }
}

}  // namespace

std::vector<RankPair> pairsOf(const std::vector<Finding>& findings, int size) {
  std::vector<RankPair> pairs;
  const auto add = [&](int a, int b) {
    if (a != b) pairs.push_back({std::min(a, b), std::max(a, b)});
  };
  for (const Finding& finding : findings) {
    if (finding.kind == FindingKind::badPath)
      add(finding.rank, finding.receiver);
    else
      for (int other = 0; other < size; ++other) add(finding.rank, other);
  }
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  return pairs;
}

const char* findingName(FindingKind kind) {
  static constexpr std::array<const char*, 4> kNames = {"slow sender", "slow receiver", "slow rank",
                                                        "bad path"};
  return kNames[static_cast<size_t>(kind)];
}

std::vector<Finding> findSlow(const CostMatrix& costs, const std::vector<int>& hosts, double limit) {
  std::vector<Finding> found;
  const CostMatrix relative = normalise(costs, hosts);
  Lines lines = middles(relative);
  if (costs.size() < 3) lines = {{1, 1}, {1, 1}};
  findLines(lines, limit, &found);
  forEachPair(costs.size(), [&](int from, int to) {
    const double explained =
        std::max({1.0, lines.senders[static_cast<size_t>(from)], lines.receivers[static_cast<size_t>(to)]});
    if (relative.at(from, to) > limit * explained)
      found.push_back({FindingKind::badPath, from, to, relative.at(from, to)});
  });
  return found;
}

void averageAcrossClocks(CostMatrix* times, const std::vector<int>& clocks) {
  for (int a = 0; a < times->size(); ++a) {
    for (int b = a + 1; b < times->size(); ++b) {
      if (clocks[static_cast<size_t>(a)] == clocks[static_cast<size_t>(b)]) continue;
      const double half = (times->at(a, b) + times->at(b, a)) / 2;
      times->at(a, b) = half;
      times->at(b, a) = half;
    }
  }
}

}  // namespace weft::perf
