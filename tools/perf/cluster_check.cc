// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/cluster_check.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>

#include "src/base/process.h"
#include "tools/netdriver/log_sink.h"
#include "tools/output/output.h"
#include "tools/perf/agreement.h"
#include "tools/perf/connector.h"
#include "tools/perf/pair_probe.h"
#include "tools/perf/results.h"

namespace weft::perf {

namespace {

constexpr int kSecondLooks = 2;  // at whoever is to be named

using Text = std::array<char, 64>;

Text cut(const std::string& text) {
  Text result{};
  std::memcpy(result.data(), text.data(), std::min(text.size(), result.size() - 1));
  return result;
}

// Where a rank is: ranks with the same clock text read the same clock; with the same place they share a
// network stack, too.
struct Home {
  Text host;
  Text clock;
  Text place;
};

Home readHome() {
  const std::string boot = machineId().data();
  std::error_code ignored;
  const auto network = std::filesystem::read_symlink("/proc/self/ns/net", ignored).string();
  return {cut(hostName()), cut(boot), cut(boot + network)};
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

// What a rank measured as the receiver, from each other.
struct Received {
  std::vector<double> latency;
  std::vector<double> bandwidth;
};

class Check {
 public:
  Check(const Options& options, netdriver::Bootstrap& bootstrap) : options_(options), bootstrap_(bootstrap) {
    const auto size = static_cast<size_t>(bootstrap.size());
    received_ = {std::vector<double>(size, std::numeric_limits<double>::infinity()),
                 std::vector<double>(size)};
  }

  Status open() {
    const std::string path = options_.plugin.empty() ? netdriver::defaultPluginPath() : options_.plugin;
    TRY(library_, netdriver::Library::open(path, options_.abi));
    TRY(netdriver::Context context, netdriver::Context::create(library_->net(), 1));
    context_.emplace(std::move(context));
    TRY(netdriver::check(library_->net().devices(&devices_), netdriver::Call::devices, path));
    if (options_.device >= devices_)
      return Error(Code::unavailable, "open plugin",
                   path + " offers " + std::to_string(devices_) + " devices, see --device");
    device_ = options_.device;
    if (options_.merge) {
      TRY(device_, netdriver::mergeDevices(library_->net()));
    }
    return {};
  }

  // Pairs of a distance are connected together and measured one after the other.
  Status run() {
    const int size = bootstrap_.size();
    for (int distance = 1; distance <= size / 2; ++distance) {
      TRY(Connections made, connect([=](int from, int to) {
            return (from + distance) % size == to || (to + distance) % size == from;
          }));
      const int pairs = 2 * distance == size ? distance : size;
      for (int first = 0; first < pairs; ++first) {
        TRY(measure(first, (first + distance) % size, &made));
        TRY(bootstrap_.barrier());
      }
    }
    return {};
  }

  // These once more, all of them the same on every rank; the better of all measurements counts.
  Status runAgain(const std::vector<RankPair>& pairs) {
    for (const RankPair& pair : pairs) {
      TRY(Connections made, connect([&](int from, int to) {
            return std::min(from, to) == pair.first && std::max(from, to) == pair.second;
          }));
      TRY(measure(pair.first, pair.second, &made));
      TRY(bootstrap_.barrier());
    }
    return {};
  }

  // Rank 0's list, for all.
  Status share(std::vector<RankPair>* pairs) {
    uint64_t count = pairs->size();
    TRY(bootstrap_.fromRoot(std::as_writable_bytes(std::span(&count, 1))));
    pairs->resize(count);
    return bootstrap_.fromRoot(std::as_writable_bytes(std::span(*pairs)));
  }

  // Complete on rank 0.
  Result<ClusterResults> collect() {
    ClusterResults results;
    TRY(const auto homes, bootstrap_.gatherValues(readHome()));
    TRY(results.latency, gather(received_.latency));
    TRY(results.bandwidth, gather(received_.bandwidth));
    results.options = &options_;
    results.plugin = library_->path();
    results.devices = devices_;
    for (const Home& home : homes) results.names.emplace_back(home.host.data());
    results.hosts = numbersOf(homes, &Home::place);
    averageAcrossClocks(&results.latency, numbersOf(homes, &Home::clock));
    return results;
  }

 private:
  Result<Connections> connect(std::function<bool(int from, int to)> connects) {
    ConnectRequest request;
    request.bootstrap = &bootstrap_;
    request.context = &*context_;
    request.device = device_;
    request.onThread = [](const std::function<Status()>& job) { return job(); };
    request.connects = std::move(connects);
    return connectRanks(request);
  }

  Status measure(int first, int second, Connections* made) {
    const int rank = bootstrap_.rank();
    if (rank != first && rank != second) return {};
    const int peer = rank == first ? second : first;
    const auto at = static_cast<size_t>(peer);
    TRY(PairProbe probe, PairProbe::create(std::move(made->to[at]), std::move(made->from[at]), rank, peer,
                                           Milliseconds(int64_t{options_.stallSeconds} * 1000)));
    TRY(const double latency, probe.latency(rank == first));
    TRY(const double there, probe.bandwidth(rank == first, options_.clusterBytes));
    TRY(const double back, probe.bandwidth(rank == second, options_.clusterBytes));
    received_.latency[at] = std::min(received_.latency[at], latency);
    received_.bandwidth[at] = std::max({received_.bandwidth[at], there, back});  // 0: what we sent
    return {};
  }

  Result<CostMatrix> gather(const std::vector<double>& mine) {
    const int size = bootstrap_.size();
    std::vector<double> all(bootstrap_.rank() == 0 ? mine.size() * mine.size() : 0);
    TRY(bootstrap_.gatherToRoot(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all))));
    CostMatrix matrix(size);
    for (size_t i = 0; i < all.size(); ++i)
      matrix.at(static_cast<int>(i) % size, static_cast<int>(i) / size) = all[i];
    return matrix;
  }

  const Options& options_;
  int device_ = 0;
  netdriver::Bootstrap& bootstrap_;
  std::unique_ptr<netdriver::Library> library_;
  std::optional<netdriver::Context> context_;
  Received received_;
  int devices_ = 0;
};

// Slow is what needs much time, so bandwidth counts as its inverse.
void judge(ClusterResults* results) {
  const int size = results->latency.size();
  CostMatrix cost(size);
  for (int from = 0; from < size; ++from)
    for (int to = 0; to < size; ++to)
      if (from != to) cost.at(from, to) = 1 / std::max(1e-9, results->bandwidth.at(from, to));
  results->slowLatency = findSlow(results->latency, results->hosts, results->options->slowLimit);
  results->slowBandwidth = findSlow(cost, results->hosts, results->options->slowLimit);
}

// Complete on rank 0. What other work on the machine made slow for a moment is not named.
Result<ClusterResults> judged(Check* check, const netdriver::Place& place) {
  for (int again = 0;; ++again) {
    TRY(ClusterResults results, check->collect());
    if (place.rank == 0) judge(&results);
    if (again == kSecondLooks) return results;
    std::vector<Finding> suspects = results.slowLatency;
    suspects.insert(suspects.end(), results.slowBandwidth.begin(), results.slowBandwidth.end());
    std::vector<RankPair> pairs = pairsOf(suspects, place.size);
    TRY(check->share(&pairs));
    if (pairs.empty()) return results;
    TRY(check->runAgain(pairs));
  }
}

}  // namespace

Result<size_t> runClusterCheck(const Options& options, const netdriver::Place& place) {
  if (place.size < 2)
    return Error(Code::invalidArgument, "command line",
                 "--check-cluster wants several ranks: -n N, or a launcher");
  netdriver::LogSink::instance().setVerbose(options.verbose);
  TRY(const auto bootstrap,
      netdriver::Bootstrap::create(place, Milliseconds(int64_t{options.timeoutSeconds} * 1000)));
  TRY(agree(options, *bootstrap));
  Check check(options, *bootstrap);
  TRY(check.open());
  TRY(check.run());
  TRY(ClusterResults results, judged(&check, place));
  if (place.rank != 0) return size_t{0};
  TRY(writeDocuments({{options.documentsShown() > 0 ? "" : "-", clusterText(results)},
                      {options.json, clusterDocument(results)}}));
  if (options.fit.empty()) return results.findings();
  TRY(writeFit(results));
  return size_t{0};  // to measure what is slow is no failure
}

}  // namespace weft::perf
