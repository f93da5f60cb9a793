// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// "Did you mean": the known word that is nearest to a misspelt one. Pure; any thread.
namespace weft {

// The edit distance: letters to insert, to remove or to change, and neighbours to exchange (optimal string
// alignment).
inline size_t editDistance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); i++) cost[i][0] = i;
  for (size_t j = 0; j <= b.size(); j++) cost[0][j] = j;
  for (size_t i = 1; i <= a.size(); i++) {
    for (size_t j = 1; j <= b.size(); j++) {
      const size_t changed = cost[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, changed});
      const bool exchanged = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (exchanged) cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

// Empty: no known word is near. A word of three letters may differ in one letter, a longer word in a third of
// its letters.
inline std::string nearestWord(std::string_view word, std::span<const std::string> known) {
  const auto nearer = [&](const std::string& a, const std::string& b) {
    return editDistance(word, a) < editDistance(word, b);
  };
  const auto best = std::min_element(known.begin(), known.end(), nearer);
  if (best == known.end() || editDistance(word, *best) > std::max<size_t>(1, word.size() / 3)) return {};
  return *best;
}

// "; the nearest is all_reduce", or nothing.
inline std::string nearestHint(std::string_view word, std::span<const std::string> known) {
  const std::string best = nearestWord(word, known);
  return best.empty() ? best : "; the nearest is " + best;
}

}  // namespace weft
