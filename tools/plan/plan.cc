// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/plan/plan.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <unistd.h>

#include <fmt/format.h>

#include "tools/output/output.h"
#include "tools/plan/export.h"
#include "tools/plan/gpu_counts.h"
#include "tools/plan/progress.h"
#include "tools/plan/report.h"
#include "tools/plan/trace_job.h"

namespace weft::plan {

namespace {

Error refuse(const std::string& what) {
  return {Code::config, "planning", what};
}

// NAME=VALUE in the units of the files.
Status setNumber(const std::string& word, Scenario* scenario) {
  const size_t sign = std::min(word.find('='), word.size());
  const Number* const number = numberNamed(word.substr(0, sign));
  char* end = nullptr;
  const std::string text = word.substr(std::min(sign + 1, word.size()));
  const double value = std::strtod(text.c_str(), &end);
  if (!number || (word.starts_with("parameters") && !scenario->job.sharded)) {
    std::string all;
    for (const Number& one : numbers()) all += (all.empty() ? "" : ", ") + std::string(one.name);
    return refuse("--set " + word + ": numbers are " + all);
  }
  if (text.empty() || *end != '\0' || !(value >= 0) || value > 1e15)
    return refuse("--set " + word + ": '" + text + "' is not a number from 0 on");
  if (value == 0 && std::string_view(number->unit) == "GB/s")
    return refuse("--set " + word + ": a rate must be above 0");
  number->set(scenario, value);
  return {};
}

Result<Scenario> readScenario(const Options& options, Job job) {
  TRY(Cluster cluster, readCluster(options.cluster));
  Scenario scenario = scenarioOf(std::move(job), std::move(cluster));
  for (const std::string& word : options.set) TRY(setNumber(word, &scenario));
  Network& network = scenario.cluster.network;
  if (options.railsLost >= network.rails)
    return refuse(fmt::format("--rails-lost {:g}: a node of {} has {:g} rails and one must be left",
                              options.railsLost, options.cluster, network.rails));
  if (options.railsLost > 0) network.railsLost = options.railsLost;
  if (options.algorithm.empty()) return scenario;
  const auto algorithm = algorithmNamed(options.algorithm);
  if (!algorithm) {
    std::string all;
    for (const AlgorithmFacts& facts : algorithms())
      all += (all.empty() ? "" : ", ") + std::string(facts.name);
    return refuse("--algo " + options.algorithm + ": algorithms are " + all);
  }
  scenario.job.algorithm = *algorithm;
  return scenario;
}

// A cluster that says how many nodes it has is not planned larger.
Result<std::vector<double>> countsOf(const Options& options, const Cluster& cluster) {
  TRY(std::vector<double> counts, gpuCounts(options.gpus));
  if (cluster.nodes <= 0) return counts;
  const double most = cluster.nodes * cluster.gpusPerNode;
  std::erase_if(counts, [&](double count) { return count > most; });
  if (counts.empty())
    return refuse(fmt::format("-n {}: {} has no more than {:g} GPUs", options.gpus, options.cluster, most));
  return counts;
}

Recorded recordedOf(const std::vector<RankTraffic>& ranks, const Network& network) {
  Recorded recorded;
  recorded.ranks = static_cast<double>(ranks.size());
  for (const RankTraffic& rank : ranks) {
    recorded.messages += rank.receivedMessages;
    recorded.bytes += rank.receivedBytes;
  }
  recorded.network = costOf(network, ranks);
  return recorded;
}

void addOperations(Report* report, const std::vector<double>& counts) {
  for (const double count : counts) {
    if (count < 2) continue;
    for (const double bytes : report->scenario.job.operationBytes)
      report->operations.push_back(predictOperation(report->scenario, count, bytes));
  }
}

void addSteps(Report* report, const std::vector<double>& counts, Progress* progress) {
  for (const double count : counts) {
    progress->begin(fmt::format("{:g} GPUs", count));
    report->predictions.push_back(predict(report->scenario, count, report->draws));
  }
  progress->begin(fmt::format("what each number changes at {:g} GPUs", counts.back()));
  report->effects = sensitivity(report->scenario, counts.back(), report->draws);
  const Network& network = report->scenario.cluster.network;
  if (network.rails - network.railsLost > 1)
    report->railLoss = railLoss(report->scenario, counts.back(), report->draws);
}

Result<Report> makeReport(const Options& options) {
  Report report;
  report.draws = {options.seed, options.draws};
  report.fitBelow = options.fitBelow;
  std::vector<RankTraffic> traffic;
  if (isRecording(options.job)) {
    TRY(traffic, readTraffic(options.job));
  }
  TRY(Job job, traffic.empty() ? readJob(options.job) : jobOf(options.job, traffic));
  TRY(report.scenario, readScenario(options, std::move(job)));
  if (!traffic.empty()) report.recorded = recordedOf(traffic, report.scenario.cluster.network);
  TRY(const std::vector<double> counts, countsOf(options, report.scenario.cluster));
  // The fit, the comparison and what each number changes are parts, too.
  Progress progress(STDERR_FILENO, static_cast<int>(counts.size()) + 3, {});
  report.draws.computed = [&progress] { progress.computed(); };
  progress.begin("fitting");
  if (options.fitBelow > 0) {
    TRY(report.scenario, fitted(report.scenario, options.fitBelow, report.draws));
  }
  progress.begin("beside what was measured");
  if (!report.scenario.job.measured.empty())
    report.comparison = compare(report.scenario, options.fitBelow, report.draws);
  if (report.scenario.job.isOperation())
    addOperations(&report, counts);
  else
    addSteps(&report, counts, &progress);
  report.draws.computed = {};
  return report;
}

// A message of a ring is a line of GOAL, and they grow with the square of the ranks.
constexpr double kMostExported = 1024;

Result<std::vector<std::vector<Activity>>> ranksOf(const Options& options, const Report& report,
                                                   double gpus) {
  if (isRecording(options.job)) {
    TRY(const std::vector<RankTraffic> traffic, readTraffic(options.job));
    return activitiesOf(options.job, traffic);
  }
  if (gpus > kMostExported || gpus < 2)
    return refuse(fmt::format("-n {}: 2 to {:g} GPUs can be exported", options.gpus, kMostExported));
  return std::vector<std::vector<Activity>>(static_cast<size_t>(gpus), activitiesOf(report.scenario.job));
}

Status writeExports(const Options& options, const Report& report) {
  if (options.chakra.empty() && options.goal.empty()) return {};
  TRY(const std::vector<double> counts, countsOf(options, report.scenario.cluster));
  TRY(const auto ranks, ranksOf(options, report, counts.back()));
  std::vector<Document> documents;
  if (!options.chakra.empty())
    for (size_t rank = 0; rank < ranks.size(); ++rank)
      documents.push_back({fmt::format("{}.{}.et", options.chakra, rank), chakraOf(ranks[rank], rank)});
  if (!options.goal.empty())
    documents.push_back(
        {options.goal, goalOf(isRecording(options.job) ? ranks : asMessages(ranks[0], ranks.size()))});
  return writeDocuments(documents);
}

Status planned(const Options& options) {
  for (const std::string& path : {options.json, options.html, options.plot, options.goal})
    TRY(canWrite(path));
  TRY(const Report report, makeReport(options));
  const bool shown = options.json == "-" || options.html == "-" || options.plot == "-" || options.goal == "-";
  if (!shown) TRY(show(textOf(report)));
  TRY(writeExports(options, report));
  return writeDocuments({{options.json, options.json.empty() ? "" : jsonOf(report)},
                         {options.html, options.html.empty() ? "" : htmlOf(report)},
                         {options.plot, options.plot.empty() ? "" : plotOf(report)}});
}

}  // namespace

int run(const Options& options) {
  const Status done = planned(options);
  if (done) return 0;
  const Error& error = done.error();
  // A user's own files are named in the detail; of what the system refused, the reason is wanted too.
  fmt::print(stderr, "weft plan: {}\n", error.errnum() == 0 ? error.detail() : error.message());
  return exitCodeOf(error);
}

}  // namespace weft::plan
