// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/perf/results.h"

// How two plugins are compared in one run: rounds in which both do the same, and what their times say. Used
// by one thread.
namespace weft::perf {

// The median of the rounds' ratios, the lowest and the highest. If both were equally fast, each round would
// be a coin toss, and with 10 of them all would fall to one side only once in 512 runs.
Ratio ratioOf(std::vector<double> ratios);

// Adds a round's sample to those before it; `rounds` is how many there are with it.
void addRound(Sample* sum, const Sample& round, int rounds);

// The ratios of several sizes together: each round's is the geometric mean over everything measured.
class MeanRatio {
 public:
  explicit MeanRatio(int rounds) : logarithms_(static_cast<size_t>(rounds)) {}
  void add(const std::vector<double>& ratios);
  Ratio ratio() const;

 private:
  std::vector<double> logarithms_;
  int measured_ = 0;
};

// Those of a whole run, and of each decade of sizes in it: what holds for small messages need not for large.
class RunRatios {
 public:
  explicit RunRatios(int rounds) : rounds_(rounds), all_(rounds) {}
  void add(uint64_t bytes, const std::vector<double>& ratios);
  Ratio ratio() const { return all_.ratio(); }
  std::vector<DecadeRatio> decades() const;  // the smallest sizes first

 private:
  struct Decade {
    MeanRatio mean;
    uint64_t smallest = 0;
    uint64_t largest = 0;
  };

  int rounds_;
  MeanRatio all_;
  std::map<int, Decade> decades_;  // by the number of decimal digits
};

// Sets environment variables and puts them back. Only while nothing else of this process reads them: a plugin
// reads its settings when it is initialised.
class EnvironmentScope {
 public:
  // Lines NAME=VALUE.
  explicit EnvironmentScope(const std::vector<std::string>& settings);
  ~EnvironmentScope();
  EnvironmentScope(const EnvironmentScope&) = delete;
  EnvironmentScope& operator=(const EnvironmentScope&) = delete;

 private:
  struct Saved {
    std::string name;
    std::optional<std::string> value;
  };
  std::vector<Saved> saved_;
};

}  // namespace weft::perf
