// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <optional>

#include "tools/perf/comparison.h"
#include "tools/perf/measurement.h"
#include "tools/perf/progress.h"
#include "tools/perf/report.h"

// A rank of a run: loads the plugin, connects the ranks and measures every size. Owns everything it makes;
// members are declared in the order they are made. Thread 0 of its crew.
namespace weft::perf {

class Runner {
  struct Key {};

 public:
  explicit Runner(Key) {}
  static Result<std::unique_ptr<Runner>> create(const Options& options, const netdriver::Place& place);

  // Every size, type and reduction. The result is the number of wrong elements over all ranks.
  Result<uint64_t> run();
  // Writes what there is of the documents, unless they are complete. Any thread, while run() is at work or
  // after it failed.
  void abandon(const std::string& why);

 private:
  Status beginReport();
  Result<uint64_t> runAll();
  Status prepare(const netdriver::Place& place);
  Status checkRanks() const;
  Status allocate();
  Status openTeams();
  TeamSetup teamSetup(const std::string& plugin);
  Case makeCase(uint64_t bytes, const ElementType& type, RedOp op) const;
  Status runCase(Case c, Row* row);
  Result<RowHalf> measure(const Case& c);
  Status measureOne(const Case& c, int iterations, RowHalf* half);
  int missing(const Sample& sample, const Case& c) const;
  Status measureBoth(const Case& c, int iterations, RowHalf* half);
  void watch(const Case& c, int iterations);

  Options options_;
  const Operation* operation_ = nullptr;
  std::unique_ptr<netdriver::Bootstrap> bootstrap_;
  std::optional<Crew> crew_;
  std::vector<Workload> workloads_;  // one for each communicator
  std::unique_ptr<Team> other_;      // of --compare
  std::unique_ptr<Team> team_;
  std::optional<Measurement> measurement_;
  std::optional<RunRatios> ratio_;  // with --compare
  std::optional<Report> report_;    // rank 0 only
  std::optional<Progress> progress_;
};

}  // namespace weft::perf
