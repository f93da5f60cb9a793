// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/cluster_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "src/base/process.h"
#include "tools/netdriver/log_sink.h"
#include "tools/output/output.h"
#include "tools/perf/agreement.h"
#include "tools/perf/cluster_root.h"
#include "tools/perf/results.h"

namespace weft::perf {

namespace {

constexpr int kSecondLooks = 2;  // at whoever is to be named
// A rank is silent that has not been heard of for so long, and a check begins without those that do not
// appear.
constexpr Milliseconds kCheckSilence{10'000};
constexpr Milliseconds kMissing{20'000};

using Text = std::array<char, 64>;

Text cut(const std::string& text) {
  Text result{};
  std::memcpy(result.data(), text.data(), std::min(text.size(), result.size() - 1));
  return result;
}

// Where a rank is: ranks with the same clock text read the same clock; with the same place they share a
// network stack, too.
struct Home {
  int32_t rank;
  Text host;
  Text clock;
  Text place;
};

Home readHome(int rank) {
  const std::string boot = machineId().data();
  std::error_code ignored;
  const auto network = std::filesystem::read_symlink("/proc/self/ns/net", ignored).string();
  return {rank, cut(hostName()), cut(boot), cut(boot + network)};
}

// Equal texts get equal numbers, from 0 in order of appearance.
std::vector<int> numbersOf(const std::vector<Home>& homes, Text Home::*member) {
  std::vector<int> numbers;
  std::vector<Text> seen;
  for (const Home& home : homes) {
    const auto at = std::find(seen.begin(), seen.end(), home.*member);
    numbers.push_back(static_cast<int>(at - seen.begin()));
    if (at == seen.end()) seen.push_back(home.*member);
  }
  return numbers;
}

void describeHomes(std::vector<Home> homes, ClusterResults* results) {
  for (size_t rank = 0; rank < homes.size(); ++rank) {
    Home& home = homes[rank];
    const bool missing = home.rank != static_cast<int>(rank);  // rank 0 speaks for it
    if (missing) home.place = cut("missing " + std::to_string(rank));
    results->names.emplace_back(missing ? "a host that is not there" : home.host.data());
  }
  results->hosts = numbersOf(homes, &Home::place);
  results->clocks = numbersOf(homes, &Home::clock);
}

// Slow is what needs much time, so bandwidth counts as its inverse. A path that was not measured is not slow.
CostMatrix costsOf(const ClusterResults& results, bool latency) {
  const CostMatrix& of = latency ? results.latency : results.bandwidth;
  CostMatrix costs(of.size());
  std::vector<double> known[2];
  const auto local = [&](int a, int b) {
    return results.hosts[static_cast<size_t>(a)] == results.hosts[static_cast<size_t>(b)];
  };
  for (int from = 0; from < of.size(); ++from)
    for (int to = 0; to < of.size(); ++to) {
      const double value = of.at(from, to);
      costs.at(from, to) = latency ? value : 1 / std::max(1e-9, value);
      if (from != to && !std::isnan(value)) known[local(from, to)].push_back(costs.at(from, to));
    }
  for (std::vector<double>& values : known) std::sort(values.begin(), values.end());
  for (int from = 0; from < of.size(); ++from)
    for (int to = 0; to < of.size(); ++to) {
      const std::vector<double>& values = known[local(from, to)];
      if (std::isnan(of.at(from, to))) costs.at(from, to) = values.empty() ? 1 : values[values.size() / 2];
    }
  return costs;
}

// With what both clocks say taken together, where they are two.
ClusterResults judged(ClusterResults results) {
  averageAcrossClocks(&results.latency, results.clocks);
  results.slowLatency = findSlow(costsOf(results, true), results.hosts, results.options->slowLimit);
  results.slowBandwidth = findSlow(costsOf(results, false), results.hosts, results.options->slowLimit);
  return results;
}

// A path that other work on the machine made slow for a moment is not named.
ClusterResults check(netdriver::Bootstrap& bootstrap, ClusterRank& self, ClusterResults raw) {
  ClusterRoot root(bootstrap, self, &raw);
  root.measureAll();
  ClusterResults results = judged(raw);
  for (int again = 0; again < kSecondLooks; ++again) {
    std::vector<Finding> suspects = results.slowLatency;
    suspects.insert(suspects.end(), results.slowBandwidth.begin(), results.slowBandwidth.end());
    const std::vector<RankPair> pairs = pairsOf(suspects, bootstrap.size());
    if (pairs.empty()) break;
    root.measureAgain(pairs);
    results = judged(raw);
  }
  root.dismiss();
  return results;
}

// A rank that is not rank 0 does what it is asked.
Status serve(netdriver::Bootstrap& bootstrap, ClusterRank& self, Milliseconds timeout) {
  const size_t most = mostOfQuestion(bootstrap.size());
  while (true) {
    TRY(const auto message, bootstrap.hear(0, std::chrono::steady_clock::now() + timeout, most));
    TRY(const Question question, decodeQuestion(message));
    const std::vector<PeerAnswer> answers = self.answer(question);
    if (question.ask == Ask::leave) return {};
    TRY(bootstrap.tell(0, encode(answers)));
  }
}

Result<size_t> runRank(const Options& options, netdriver::Bootstrap& bootstrap) {
  TRY(agree(options, bootstrap));
  TRY(ClusterRank self, ClusterRank::open(options, bootstrap.rank()));
  ClusterResults results;
  results.options = &options;
  results.plugin = self.plugin();
  results.devices = self.devices();
  TRY(auto homes, bootstrap.gatherValues(readHome(bootstrap.rank())));
  if (bootstrap.rank() != 0) {
    TRY(serve(bootstrap, self, Milliseconds(int64_t{options.timeoutSeconds} * 1000)));
    return size_t{0};
  }
  describeHomes(std::move(homes), &results);
  results = check(bootstrap, self, std::move(results));
  TRY(writeDocuments({{options.documentsShown() > 0 ? "" : "-", clusterText(results)},
                      {options.json, clusterDocument(results)}}));
  if (options.fit.empty()) return results.findings();
  TRY(writeFit(results));
  return size_t{0};  // to measure what is slow is no failure
}

}  // namespace

Result<size_t> runClusterCheck(const Options& options, const netdriver::Place& place) {
  if (place.size < 2)
    return Error(Code::invalidArgument, "command line",
                 "--check-cluster wants several ranks: -n N, or a launcher");
  netdriver::LogSink::instance().setVerbose(options.verbose);
  const netdriver::Patience patience{Milliseconds(int64_t{options.timeoutSeconds} * 1000), kCheckSilence,
                                     kMissing};
  TRY(const auto bootstrap, netdriver::Bootstrap::create(place, patience));
  auto findings = runRank(options, *bootstrap);
  if (!findings) bootstrap->abandon(findings.error().message());
  return findings;
}

}  // namespace weft::perf
