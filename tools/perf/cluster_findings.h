// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

// Which ranks and paths of a cluster are slower than the rest, from a matrix of costs. Pure functions; any
// thread.
namespace weft::perf {

// The cost of something from each rank to each other; the diagonal means nothing.
class CostMatrix {
 public:
  explicit CostMatrix(int size)
      : size_(size), costs_(static_cast<size_t>(size) * static_cast<size_t>(size)) {}
  int size() const { return size_; }
  double& at(int from, int to) { return costs_[index(from, to)]; }
  double at(int from, int to) const { return costs_[index(from, to)]; }

 private:
  size_t index(int from, int to) const {
    return static_cast<size_t>(from) * static_cast<size_t>(size_) + static_cast<size_t>(to);
  }
  int size_;
  std::vector<double> costs_;
};

enum class FindingKind : uint8_t { slowSender, slowReceiver, slowRank, badPath };

struct Finding {
  FindingKind kind;
  int rank = 0;       // who; the sender of a bad path
  int receiver = -1;  // of a bad path
  double times = 1;   // as much as a typical one
};

// Two ranks, the lower one first.
struct RankPair {
  int first;
  int second;
  auto operator<=>(const RankPair&) const = default;
};
// Those that a finding rests on, each once.
std::vector<RankPair> pairsOf(const std::vector<Finding>& findings, int size);

const char* findingName(FindingKind kind);

// Rows, columns and cells that cost more than `limit` times what is typical among pairs of the same kind:
// within a host, or between hosts. `hosts` says for each rank which one it is on. A cell is only named for
// what its row and column do not explain. Between two ranks there is no telling who is slow: that is a path.
std::vector<Finding> findSlow(const CostMatrix& costs, const std::vector<int>& hosts, double limit);

// Times of one way that are measured with the clocks of both ends contain the difference of the clocks.
// Between ranks with different clocks both directions become half of the round trip; `clocks` says for each
// rank which one it reads.
void averageAcrossClocks(CostMatrix* times, const std::vector<int>& clocks);

}  // namespace weft::perf
