// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/comparison.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "src/base/config.h"

namespace weft::perf {

Ratio ratioOf(std::vector<double> ratios) {
  if (ratios.empty()) return {};
  std::sort(ratios.begin(), ratios.end());
  const size_t half = ratios.size() / 2;
  const double median = ratios.size() % 2 != 0 ? ratios[half] : (ratios[half - 1] + ratios[half]) / 2;
  return {median, ratios.front(), ratios.back()};
}

void addRound(Sample* sum, const Sample& round, int rounds) {
  sum->microseconds += (round.microseconds - sum->microseconds) / rounds;
  sum->cpuMicroseconds += round.cpuMicroseconds;
  sum->messages += round.messages;
  sum->wrong += round.wrong;
  sum->latency.merge(round.latency);
}

void MeanRatio::add(const std::vector<double>& ratios) {
  for (size_t i = 0; i < logarithms_.size() && i < ratios.size(); ++i) logarithms_[i] += std::log(ratios[i]);
  ++measured_;
}

Ratio MeanRatio::ratio() const {
  std::vector<double> ratios;
  for (const double sum : logarithms_) ratios.push_back(std::exp(sum / std::max(1, measured_)));
  return ratioOf(std::move(ratios));
}

void RunRatios::add(uint64_t bytes, const std::vector<double>& ratios) {
  all_.add(ratios);
  const auto digits = static_cast<int>(std::to_string(bytes).size());
  Decade& decade = decades_.try_emplace(digits, Decade{MeanRatio(rounds_), bytes, bytes}).first->second;
  decade.mean.add(ratios);
  decade.smallest = std::min(decade.smallest, bytes);
  decade.largest = std::max(decade.largest, bytes);
}

std::vector<DecadeRatio> RunRatios::decades() const {
  std::vector<DecadeRatio> found;
  for (const auto& [digits, decade] : decades_)
    found.push_back({decade.smallest, decade.largest, decade.mean.ratio()});
  return found;
}

EnvironmentScope::EnvironmentScope(const std::vector<std::string>& settings) {
  for (const std::string& setting : settings) {
    const size_t equals = setting.find('=');
    const std::string name = setting.substr(0, equals);
    const char* old = environmentValue(name.c_str());
    saved_.push_back({name, old != nullptr ? std::optional<std::string>(old) : std::nullopt});
    setenv(name.c_str(), setting.c_str() + equals + 1, 1);
  }
}

EnvironmentScope::~EnvironmentScope() {
  for (auto saved = saved_.rbegin(); saved != saved_.rend(); ++saved) {
    if (saved->value)
      setenv(saved->name.c_str(), saved->value->c_str(), 1);
    else
      unsetenv(saved->name.c_str());
  }
}

}  // namespace weft::perf
