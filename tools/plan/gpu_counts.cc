// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/plan/gpu_counts.h"

#include <algorithm>
#include <cstdint>

#include "src/base/number.h"

namespace weft::plan {

namespace {

constexpr uint64_t kMostGpus = 1000000;

Result<double> countOf(const std::string& word, const std::string& all) {
  uint64_t count = 0;
  if (!readNumber(word, kMostGpus, &count) || count == 0)
    return Error(Code::config, "reading the number of GPUs",
                 "-n " + all + ": '" + word + "' is not a number from 1 to " + std::to_string(kMostGpus));
  return static_cast<double>(count);
}

Status addRange(const std::string& word, const std::string& all, std::vector<double>* counts) {
  const size_t dots = word.find("..");
  TRY(const double first, countOf(word.substr(0, dots), all));
  if (dots == std::string::npos) {
    counts->push_back(first);
    return {};
  }
  TRY(const double last, countOf(word.substr(dots + 2), all));
  if (last < first)
    return Error(Code::config, "reading the number of GPUs",
                 "-n " + all + ": '" + word + "' ends before it begins");
  for (double count = first; count < last; count *= 2) counts->push_back(count);
  counts->push_back(last);
  return {};
}

}  // namespace

Result<std::vector<double>> gpuCounts(const std::string& text) {
  std::vector<double> counts;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    TRY(addRange(text.substr(begin, end - begin), text, &counts));
    begin = end + 1;
  }
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  return counts;
}

}  // namespace weft::plan
