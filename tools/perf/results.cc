// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/results.h"

namespace weft::perf {

namespace {

std::string formatted(std::time_t time, const char* pattern) {
  std::tm parts{};
  std::array<char, 32> text{};
  gmtime_r(&time, &parts);
  std::strftime(text.data(), text.size(), pattern, &parts);
  return text.data();
}

}  // namespace

std::string dateOf(std::time_t time) {
  return formatted(time, "%Y-%m-%d");
}

std::string momentOf(std::time_t time) {
  return formatted(time, "%Y-%m-%d %H:%M UTC");
}

void Sample::append(const Sample& more) {
  const double both = static_cast<double>(iterations) + more.iterations;
  microseconds = (microseconds * iterations + more.microseconds * more.iterations) / both;
  iterations += more.iterations;
  wrong += more.wrong;
  messages += more.messages;
  cpuMicroseconds += more.cpuMicroseconds;
  latency.merge(more.latency);
}

uint64_t Results::wrong() const {
  uint64_t sum = 0;
  for (const Row& row : rows)
    for (const auto& [place, half] : halvesOf(row)) sum += half->wrong();
  return sum;
}

double Results::averageBusGBps() const {
  double sum = 0;
  int samples = 0;
  for (const Row& row : rows) {
    for (const auto& [place, half] : halvesOf(row)) {
      sum += busGBps(row, half->sample);
      ++samples;
    }
  }
  return samples > 0 ? sum / samples : 0;
}

std::vector<std::pair<const char*, const RowHalf*>> halvesOf(const Row& row) {
  std::vector<std::pair<const char*, const RowHalf*>> halves;
  if (row.outOfPlace) halves.emplace_back("out_of_place", &*row.outOfPlace);
  if (row.inPlace) halves.emplace_back("in_place", &*row.inPlace);
  return halves;
}

}  // namespace weft::perf
