// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "tools/json/json.h"
#include "tools/perf/cluster_check.h"

namespace weft::perf {

namespace {

constexpr int kMostColumns = 16;  // more do not fit on a line; the document has them all

std::string rankName(const ClusterResults& results, int rank) {
  return fmt::format("rank {} on {}", rank, results.names[static_cast<size_t>(rank)]);
}

std::string describe(const ClusterResults& results, const Finding& finding, const char* what) {
  std::string who = rankName(results, finding.rank);
  if (finding.kind == FindingKind::badPath) who += " to " + rankName(results, finding.receiver);
  return fmt::format("{}: {} ({}, {:.1f} times the typical time)", findingName(finding.kind), who, what,
                     finding.times);
}

std::string matrixText(const char* title, const CostMatrix& matrix) {
  std::string text = fmt::format("# {}\n# from \\ to", title);
  const int columns = std::min(matrix.size(), kMostColumns);
  for (int to = 0; to < columns; ++to) text += fmt::format("  {:>8}", to);
  text += "\n";
  for (int from = 0; from < columns; ++from) {
    text += fmt::format("{:>11}", from);
    for (int to = 0; to < columns; ++to)
      text += from == to                        ? fmt::format("  {:>8}", "-")
              : std::isnan(matrix.at(from, to)) ? fmt::format("  {:>8}", "X")
                                                : fmt::format("  {:>8.2f}", matrix.at(from, to));
    text += "\n";
  }
  if (columns < matrix.size())
    text += fmt::format("# and {} ranks more, see --json\n", matrix.size() - columns);
  return text;
}

bool isOneHost(const ClusterResults& results) {
  const auto isFirst = [&](int host) { return host == results.hosts.front(); };
  return results.lost.empty() && std::all_of(results.hosts.begin(), results.hosts.end(), isFirst);
}

// Ranks of one host tell nothing of a slow host, which is what most people look for.
constexpr const char* kOneHostText =
    "# all ranks are on this host: no path between hosts was measured. For those, one rank on each of them:\n"
    "#   WEFT_TOKEN=$(openssl rand -hex 16) srun --ntasks-per-node 1 weft perf --check-cluster\n";

Json matrixOf(const CostMatrix& matrix) {
  Json rows = Json::array();
  for (int from = 0; from < matrix.size(); ++from) {
    Json row = Json::array();
    for (int to = 0; to < matrix.size(); ++to) {
      const bool known = from != to && !std::isnan(matrix.at(from, to));
      row.append(known ? Json(matrix.at(from, to)) : Json());
    }
    rows.append(std::move(row));
  }
  return rows;
}

std::string deadText(const ClusterResults& results, const DeadPath& path) {
  return fmt::format("unreachable: {} cannot reach {}{}: {}\n", rankName(results, path.from),
                     rankName(results, path.to), path.bothWays ? ", nor the other way round" : "", path.why);
}

void addDead(const ClusterResults& results, Json* to) {
  for (const DeadPath& path : results.dead)
    to->append({{"kind", "unreachable"},
                {"in", "connection"},
                {"rank", path.from},
                {"receiver", path.to},
                {"both_ways", path.bothWays},
                {"why", path.why}});
  for (const LostRank& lost : results.lost)
    to->append({{"kind", "lost rank"}, {"in", "rendezvous"}, {"rank", lost.rank}, {"why", lost.why}});
}

void addFindings(const std::vector<Finding>& findings, const char* what, Json* to) {
  for (const Finding& finding : findings) {
    Json json = {
        {"kind", findingName(finding.kind)}, {"in", what}, {"rank", finding.rank}, {"times", finding.times}};
    if (finding.kind == FindingKind::badPath) json.set("receiver", finding.receiver);
    to->append(std::move(json));
  }
}

}  // namespace

std::string clusterText(const ClusterResults& results) {
  std::string text = fmt::format(
      "# weft perf --check-cluster: {} ranks, {} pairs in {} rounds of pairs without a common host, {:.1f} "
      "s\n"
      "# plugin {}\n",
      results.latency.size(), results.latency.size() * (results.latency.size() - 1) / 2, results.rounds,
      results.seconds, results.plugin);
  for (int rank = 0; rank < std::min(results.latency.size(), kMostColumns); ++rank)
    text += fmt::format("# {}\n", rankName(results, rank));
  text += matrixText("one-way latency of a small message (us)", results.latency);
  text += matrixText("bandwidth (GB/s)", results.bandwidth);
  if (!results.dead.empty() || !results.lost.empty()) text += "# X: not measured\n";
  for (const LostRank& lost : results.lost)
    text += fmt::format("lost: {}: {}\n", rankName(results, lost.rank), lost.why);
  for (const DeadPath& path : results.dead) text += deadText(results, path);
  for (const Finding& finding : results.slowLatency) text += describe(results, finding, "latency") + "\n";
  for (const Finding& finding : results.slowBandwidth) text += describe(results, finding, "bandwidth") + "\n";
  if (results.slowLatency.empty() && results.slowBandwidth.empty())
    text += fmt::format("# no rank and no path takes more than {:.1f} times what is typical\n",
                        results.options->slowLimit);
  return isOneHost(results) ? text + kOneHostText : text;
}

std::string clusterDocument(const ClusterResults& results) {
  Json document = {{"plugin", results.plugin},
                   {"ranks", results.names},
                   {"hosts", results.hosts},
                   {"slow_limit", results.options->slowLimit},
                   {"rounds", static_cast<uint64_t>(results.rounds)},
                   {"seconds", results.seconds},
                   {"latency_us", matrixOf(results.latency)},
                   {"bandwidth_gbps", matrixOf(results.bandwidth)}};
  Json findings = Json::array();
  addDead(results, &findings);
  addFindings(results.slowLatency, "latency", &findings);
  addFindings(results.slowBandwidth, "bandwidth", &findings);
  document.set("findings", std::move(findings));
  return document.text() + "\n";
}

}  // namespace weft::perf
