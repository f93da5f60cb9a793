// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/stats/torch_dump.h"

#include <algorithm>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "src/base/number.h"
#include "src/base/printable.h"
#include "src/base/shared_folder.h"
#include "tools/stats/pickle.h"

namespace weft::counted {

namespace {

constexpr size_t kLargest = 256 << 20;  // bytes of a file
constexpr std::string_view kMark = "rank_";

std::optional<int> rankOfFile(const std::string& name) {
  const size_t at = name.rfind(kMark);
  if (at == std::string::npos) return std::nullopt;
  return parseNumber<int>(name.substr(at + kMark.size()));
}

// Lists of lists of numbers; a file may have a list that holds itself, and longer ones than a line shows.
constexpr size_t kMostShown = 16;
constexpr int kDeepest = 3;

std::string sizesText(const Pickled* sizes, int depth = 0) {
  if (!sizes) return {};
  const Pickled::List* list = sizes->list();
  if (!list) return std::to_string(sizes->number());
  if (depth == kDeepest) return "[...]";
  std::string text;
  for (size_t i = 0; i < std::min(list->size(), kMostShown); i++)
    text += (i == 0 ? "" : ", ") + sizesText((*list)[i], depth + 1);
  return "[" + text + (list->size() > kMostShown ? ", ..." : "") + "]";
}

std::string textAt(const Pickled& entry, std::string_view key) {
  const Pickled* value = entry.at(key);
  return value ? printable(value->text()) : std::string();
}

std::string groupOf(const Pickled& entry) {
  const Pickled* group = entry.at("process_group");
  const Pickled::List* names = group ? group->list() : nullptr;
  return names && !names->empty() ? printable(names->front()->text()) : std::string();
}

// The entry becomes the rank's last call where it is later than the one before. Messages between two ranks
// have numbers of their own, and are left to weft.
void add(const Pickled& entry, TorchRank* rank) {
  const Pickled* number = entry.at("collective_seq_id");
  const auto* pair = entry.at("is_p2p") ? std::get_if<bool>(&entry.at("is_p2p")->value) : nullptr;
  if (!number || (pair && *pair)) return;
  const int64_t at = number->number();
  if (textAt(entry, "state") == "completed") rank->finished = std::max(rank->finished, at);
  if (at <= rank->called) return;
  rank->called = at;
  rank->call = textAt(entry, "profiling_name") + " of " + sizesText(entry.at("input_sizes"));
}

using ByGroup = std::map<std::string, TorchRank>;

ByGroup groupsOf(const Pickled& dump) {
  ByGroup groups;
  const Pickled* entries = dump.at("entries");
  const Pickled::List* list = entries ? entries->list() : nullptr;
  if (!list) return groups;
  for (const Pickled* entry : *list) {
    const std::string group = groupOf(*entry);
    TorchRank& rank = groups[group];
    rank.group = group;
    add(*entry, &rank);
  }
  return groups;
}

std::map<int, ByGroup> allDumps(const std::string& path) {
  std::map<int, ByGroup> all;
  const SharedFolder folder(path);
  for (const std::string& name : folder.names("")) {
    const auto rank = rankOfFile(name);
    if (!rank) continue;
    const auto bytes = folder.text(name, kLargest + 1);
    if (!bytes || bytes->size() > kLargest) continue;
    if (const auto pickle = readPickle(*bytes)) all[*rank] = groupsOf(*pickle->root);
  }
  return all;
}

// The group in which the most ranks have called what is not over.
std::string groupInQuestion(const std::map<int, ByGroup>& all) {
  std::map<std::string, size_t> open;
  for (const auto& [rank, groups] : all)
    for (const auto& [name, of] : groups) open[name] += of.called > of.finished ? 1 : 0;
  const auto most = std::max_element(open.begin(), open.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == open.end() ? std::string() : most->first;
}

}  // namespace

std::vector<TorchRank> readTorchDumps(const std::string& folder) {
  const std::map<int, ByGroup> all = allDumps(folder);
  const std::string group = groupInQuestion(all);
  std::vector<TorchRank> ranks;
  for (const auto& [number, groups] : all) {
    const auto found = groups.find(group);
    if (found == groups.end()) continue;
    ranks.push_back(found->second);
    ranks.back().rank = number;
  }
  return ranks;
}

std::vector<std::string> torchFindings(const std::vector<TorchRank>& ranks) {
  std::vector<std::string> findings;
  if (ranks.empty()) return findings;
  int64_t latest = -1;
  std::map<std::string, size_t> calls;  // with the latest number
  for (const TorchRank& rank : ranks) latest = std::max(latest, rank.called);
  for (const TorchRank& rank : ranks)
    if (rank.called == latest) calls[rank.call]++;
  const auto most = std::max_element(calls.begin(), calls.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  for (const TorchRank& rank : ranks) {
    if (rank.called < latest)
      findings.push_back(
          fmt::format("PyTorch: rank {} has not called collective {} of group {}, {}, that others are in; "
                      "its last one was "
                      "{}, {}",
                      rank.rank, latest, rank.group, most->first, rank.called, rank.call));
    else if (rank.call != most->first)
      findings.push_back(
          fmt::format("PyTorch: rank {} has called {} as collective {} of group {}, and others {}", rank.rank,
                      rank.call, latest, rank.group, most->first));
  }
  return findings;
}

}  // namespace weft::counted
