// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "providers/fault/options.h"

// The rules of one fault Transport and what they hit so far. Shared by the Transport and the test that turns
// faults on and off while it runs. Thread-safe; Queues look at a copy of their own and only compare a version
// on the data path.
namespace weft::fault {

struct FaultCounts {
  uint64_t seen = 0;  // operations that fitted the rule
  uint64_t hits = 0;
  uint64_t works = 0;  // unfinished works of the Queue at its hits, the one hit included, summed
  uint64_t bytes = 0;  // and their bytes
};

// A rule at work. `rule` is constant.
class RuleState {
 public:
  RuleState(FaultRule what, uint64_t seed) : rule(std::move(what)), seed_(seed) {}

  const FaultRule rule;

  // Counts one fitting operation; true: it is hit.
  bool next();
  void undo() { seen_.fetch_sub(1, std::memory_order_relaxed); }  // the operation did not happen after all
  void record(uint64_t works, uint64_t bytes);
  FaultCounts counts() const;
  std::string text() const;  // "drop hit 3 of 40, 5 works and 70000 bytes unfinished"

 private:
  const uint64_t seed_;
  std::atomic<uint64_t> seen_{0};
  std::atomic<uint64_t> hits_{0};
  std::atomic<uint64_t> works_{0};
  std::atomic<uint64_t> bytes_{0};
};

using Rules = std::vector<std::shared_ptr<RuleState>>;

class FaultControl {
 public:
  explicit FaultControl(uint64_t seed = 1) : seed_(seed) {}

  // Takes effect with the next call of each Queue. The result counts and stays valid after clear.
  std::shared_ptr<RuleState> add(FaultRule rule);
  void clear();  // no faults from here on; what was held back is still released in its time

  uint64_t seed() const { return seed_; }
  uint64_t version() const { return version_.load(std::memory_order_acquire); }
  Rules rules() const;                      // those in force
  std::vector<std::string> report() const;  // a line for each rule there ever was

 private:
  const uint64_t seed_;
  std::atomic<uint64_t> version_{0};
  mutable std::mutex mutex_;  // guards what follows
  Rules active_;
  Rules all_;
};

}  // namespace weft::fault
