// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <chrono>
#include <map>
#include <set>

#include "tools/perf/cluster_check.h"
#include "tools/perf/cluster_rank.h"
#include "tools/perf/cluster_rounds.h"

// Rank 0's side of a cluster check: asks the ranks, in rounds, and goes on without those that do not answer.
// Waits for what does not connect cost a few seconds each, so after two of them all pairs that are left are
// tried at once, and only those that connect are measured. Used by one thread.
namespace weft::perf {

class ClusterRoot {
 public:
  // `results` has names and hosts; the rest is filled here.
  ClusterRoot(netdriver::Bootstrap& bootstrap, ClusterRank& self, ClusterResults* results);

  void measureAll();
  // These once more; the better of all measurements counts.
  void measureAgain(const std::vector<RankPair>& pairs);
  void dismiss();  // the other ranks

 private:
  using Answers = std::map<int, std::vector<PeerAnswer>>;  // by rank

  Answers ask(Ask what, const std::map<int, Question>& questions);
  std::map<int, Question> questionsFor(const Round& round) const;
  Round reach(const Round& round);  // which of them are connected both ways
  void measure(const Round& round, bool again);
  void runRounds(std::vector<RankPair> pairs, bool again);
  Round present(const std::vector<RankPair>& pairs) const;
  void noteUnreached(const RankPair& pair, const PeerAnswer& first, const PeerAnswer& second);
  void noteUnmeasured(const RankPair& pair, const PeerAnswer& first, const PeerAnswer& second);
  void lose(int rank, const std::string& why);
  void tellProgress(size_t done, size_t of);

  netdriver::Bootstrap& bootstrap_;
  ClusterRank& self_;
  ClusterResults& results_;
  std::set<int> suspects_;  // ranks that could not reach somebody
  int waits_ = 0;           // rounds in which somebody was not reached
  std::chrono::steady_clock::time_point began_;
  std::chrono::steady_clock::time_point told_;
};

}  // namespace weft::perf
