// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <mutex>

#include <fmt/format.h>

#include "tools/output/output.h"
#include "tools/perf/comparison.h"
#include "tools/perf/results.h"

// The output of rank 0: the conditions of the run, a table in nccl-tests' columns that grows as it is
// measured, and at the end the documents that were asked for. Used by one thread, but for abandon().
namespace weft::perf {

class Report {
 public:
  Report(const Options& options, const Operation& operation, int size);

  void begin(Conditions conditions);
  void endRow(Row row);  // whole: whatever else is written meanwhile does not stand in the middle of one
  // Writes the summary and the documents. Null: nothing was compared.
  Status end(const RunRatios* ratios);
  // Instead of the end, for a reason: the documents with the rows that there are. Nothing once the end has
  // come, or before the beginning. Any thread.
  void abandon(const std::string& why);

 private:
  void printComparison(const Row& row) const;
  void printLatencies() const;
  void printHistogram(const Histogram& latency) const;
  void printDecades() const;
  void printSummary() const;
  Status write() const;

  // The table; nothing while a document goes to the standard output.
  template <class... Args>
  void print(fmt::format_string<Args...> format, Args&&... args) const {
    if (quiet_ || !shown_) return;
    shown_ = show(fmt::format(format, std::forward<Args>(args)...));
  }

  const Options& options_;
  bool quiet_;
  mutable Status shown_;  // what the standard output did not take, nobody sees
  std::mutex mutex_;      // over what follows
  enum class Phase : uint8_t { before, during, after } phase_ = Phase::before;
  Results results_;
};

}  // namespace weft::perf
