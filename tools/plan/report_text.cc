// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cmath>

#include <fmt/format.h>

#include "tools/output/words.h"
#include "tools/plan/report.h"

namespace weft::plan {

namespace {

constexpr double kMs = 1e3;
constexpr double kMib = 1048576;
constexpr size_t kMostEffects = 8;

std::string clusterLine(const Cluster& cluster) {
  const Network& network = cluster.network;
  std::string line =
      fmt::format("# cluster {}: {:g} GPUs a node, {:g} rails of {:.4g} GB/s, {:.4g} us a step", cluster.name,
                  cluster.gpusPerNode, network.rails, network.railGBps, network.alphaUs);
  if (cluster.inside.GBps > 0)
    line += fmt::format("; inside {:.4g} GB/s, {:.4g} us", cluster.inside.GBps, cluster.inside.alphaUs);
  if (network.railsLost > 0) line += fmt::format("; {:g} rails lost", network.railsLost);
  if (cluster.kappa > 0) line += fmt::format("; kappa {:.3g}", cluster.kappa);
  if (cluster.sigma > 0) line += fmt::format("; sigma {:.3g}", cluster.sigma);
  return line + "\n";
}

std::string jobLine(const Job& job) {
  if (job.isOperation())
    return fmt::format("# operation {} by {}\n", nameOf(job.collective), nameOf(job.algorithm));
  std::string line = fmt::format("# job {}: forward {:.4g} ms, backward {:.4g} ms", job.name,
                                 job.forwardUs / kMs, job.backwardUs / kMs);
  if (job.optimizerUs > 0) line += fmt::format(", optimizer {:.4g} ms", job.optimizerUs / kMs);
  if (!job.buckets.empty())
    line += fmt::format("; {} buckets, {:.4g} MB", job.buckets.size(), job.bytes() / 1e6);
  if (job.sharded) line += fmt::format("; {:.4g} parameters sharded over all", job.sharded->parameters);
  if (job.overlap == Overlap::window) line += fmt::format("; at most {:.4g} ms hidden", job.windowUs / kMs);
  if (job.overlap == Overlap::none) line += "; nothing hidden";
  return line + "\n";
}

// In lines that a terminal holds.
std::string remark(const std::string& sentence) {
  return wrapped(sentence, 112, "#   ");
}

std::string sourceLines(const Report& report) {
  return remark(report.scenario.job.source) + clusterLine(report.scenario.cluster) +
         remark(report.scenario.cluster.source);
}

std::string predictionRows(const Report& report) {
  const Job& job = report.scenario.job;
  std::string text = fmt::format("#{:>7} {:>10} {:>17} {:>7} {:>12} {:>9} {:>9} {:>9} {:>8}  {:<12} {}\n",
                                 "GPUs", "step ms", "5..95 %", "effic.", job.unit + "/s", "comm ms", "hidden",
                                 "exposed", "skew", "algorithm", "limit");
  for (const Prediction& p : report.predictions) {
    text += fmt::format(
        "{:>8g} {:>10.2f} {:>8.2f}..{:<7.2f} {:>6.1f}% {:>12.5g} {:>9.2f} {:>9.2f} {:>9.2f} {:>8.2f}  {:<12} "
        "{}",
        p.gpus, p.stepUs / kMs, p.lowUs / kMs, p.highUs / kMs, 100 * p.efficiency, p.throughput,
        p.step.communication.us() / kMs, p.step.hiddenUs() / kMs, p.step.exposedUs / kMs, p.skewUs / kMs,
        p.gpus > 1 ? nameOf(p.algorithm) : "-", nameOf(p.limit));
    if (p.tflops > 0) text += fmt::format(", {:.1f} TFLOPs a GPU", p.tflops);
    text += "\n";
  }
  return text;
}

std::string operationRows(const Report& report) {
  std::string text = fmt::format("#{:>7} {:>10} {:>12} {:>12} {:>12} {:>10}  {}\n", "GPUs", "MiB", "us",
                                 "latency us", "transfer us", "busbw GB/s", "algorithm");
  for (const OperationPrediction& p : report.operations)
    text += fmt::format("{:>8g} {:>10g} {:>12.1f} {:>12.1f} {:>12.1f} {:>10.1f}  {}\n", p.operation.gpus,
                        p.operation.bytes / kMib, p.cost.us(), p.cost.latencyUs, p.cost.transferUs, p.busGBps,
                        nameOf(p.algorithm));
  return text;
}

std::string effectRows(const Report& report) {
  if (report.effects.empty()) return {};
  std::string text = fmt::format("# at {:g} GPUs, 10 % more of a number changes the step by\n",
                                 report.predictions.back().gpus);
  size_t shown = 0;
  for (const Effect& effect : report.effects) {
    if (++shown > kMostEffects || std::abs(effect.stepChange) < kLeastShown) break;
    text += fmt::format("#   {:<16} {:>10.4g} {:<5} {:>+8.3f} %\n", effect.number->name, effect.value,
                        effect.number->unit, 100 * effect.stepChange);
  }
  return text;
}

std::string lossRow(const Report& report) {
  if (!report.railLoss) return {};
  const RailLoss& loss = *report.railLoss;
  std::string text = fmt::format("# a rail of each node lost: step {:.2f} ms instead of {:.2f} ({:+.2f} %)",
                                 loss.after / kMs, loss.before / kMs, 100 * (loss.after / loss.before - 1));
  if (loss.onceUs > 0) text += fmt::format("; once {:.1f} ms", loss.onceUs / kMs);
  if (loss.untilRepairUs > 0)
    text += fmt::format(", and until the repair {:.1f} ms in all", loss.untilRepairUs / kMs);
  return text + "\n";
}

std::string recordedRow(const Report& report) {
  if (!report.recorded) return {};
  const Recorded& recorded = *report.recorded;
  return fmt::format(
      "# recorded: {:g} ranks received {:g} messages of {:.4g} MB in all; without computing this network "
      "takes "
      "{:.1f} ms for them\n",
      recorded.ranks, recorded.messages, recorded.bytes / 1e6, recorded.network.us() / kMs);
}

std::string comparisonRows(const Report& report) {
  if (!report.comparison) return {};
  const Comparison& comparison = *report.comparison;
  const Job& job = report.scenario.job;
  std::string text = "# beside what was measured\n" + remark(job.measuredSource);
  if (report.fitBelow > 0) {
    text += fmt::format("#   fitted below {:g} GPUs:", report.fitBelow);
    for (const std::string& name : job.freeNumbers)
      text += fmt::format(" {} {:.4g}", name, numberNamed(name)->get(report.scenario));
    text += "\n";
  }
  for (const Compared& one : comparison.points)
    text += fmt::format("#   {:>6g} GPUs{} measured {:>9.5g} predicted {:>9.5g} {:>+6.1f} %{}\n",
                        one.measured.gpus,
                        one.measured.bytes > 0 ? fmt::format(" {:>6g} MiB", one.measured.bytes / kMib) : "",
                        one.measured.value, one.predicted, 100 * one.error(),
                        report.fitBelow > 0 && !one.fitted ? "  held out" : "");
  text += fmt::format("#   rms {:.1f} %, worst {:.1f} %", 100 * comparison.rms, 100 * comparison.worst);
  if (report.fitBelow > 0)
    text += fmt::format("; rms of what was fitted {:.1f} %, of what was held out {:.1f} %",
                        100 * comparison.rmsFitted, 100 * comparison.rmsHeldOut);
  return text + "\n";
}

}  // namespace

std::string textOf(const Report& report) {
  std::string text = jobLine(report.scenario.job) + sourceLines(report);
  text += report.scenario.job.isOperation() ? operationRows(report) : predictionRows(report);
  return text + recordedRow(report) + effectRows(report) + lossRow(report) + comparisonRows(report);
}

}  // namespace weft::plan
