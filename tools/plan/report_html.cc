// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "tools/output/page/page.h"
#include "tools/output/words.h"
#include "tools/plan/report.h"

namespace weft::plan {

namespace {

constexpr double kMsOfUs = 1e3;
constexpr size_t kMostBars = 10;

Curve measuredCurve(const Report& report, double operationGpus) {
  Curve curve{"measured", {}, false, false, 1};
  if (!report.comparison) return curve;
  for (const Compared& one : report.comparison->points) {
    if (operationGpus == 0)
      curve.points.emplace_back(one.measured.gpus, one.measured.value);
    else if (one.measured.gpus == operationGpus)
      curve.points.emplace_back(one.measured.bytes / 1048576, one.measured.value);
  }
  return curve;
}

Chart throughputChart(const Report& report) {
  const Job& job = report.scenario.job;
  Chart chart{
      "throughput", "GPUs", job.unit + "/s", true, {{"predicted", {}}, {"ideal", {}, true, true, 2}}, {}};
  for (const Prediction& p : report.predictions) {
    chart.curves[0].points.emplace_back(p.gpus, p.throughput);
    chart.curves[1].points.emplace_back(p.gpus, p.gpus * job.samplesPerGpu / job.computeUs() * 1e6);
  }
  if (const Curve measured = measuredCurve(report, 0); !measured.points.empty())
    chart.curves.push_back(measured);
  return chart;
}

Chart efficiencyChart(const Report& report) {
  const Job& job = report.scenario.job;
  Chart chart{"efficiency; the band holds 90 of 100 steps",
              "GPUs",
              "% of computing alone",
              false,
              {{"predicted", {}}},
              {}};
  for (const Prediction& p : report.predictions) {
    chart.curves[0].points.emplace_back(p.gpus, 100 * p.efficiency);
    chart.bands.push_back({p.gpus, 100 * job.computeUs() / p.highUs, 100 * job.computeUs() / p.lowUs});
  }
  Curve measured = measuredCurve(report, 0);
  for (auto& [gpus, value] : measured.points)
    value *= job.computeUs() / 1e6 / (gpus * job.samplesPerGpu) * 100;
  if (!measured.points.empty()) chart.curves.push_back(measured);
  return chart;
}

Bars partsChart(const Report& report) {
  Bars bars{"parts of a step, ms", {"computing", "contention", "exposed communication", "skew"}, {}};
  for (const Prediction& p : report.predictions)
    bars.bars.push_back({fmt::format("{:g} GPUs", p.gpus),
                         {p.step.computeUs / kMsOfUs, p.step.contendedUs / kMsOfUs,
                          p.step.exposedUs / kMsOfUs, std::max(0.0, p.skewUs) / kMsOfUs}});
  return bars;
}

Bars effectsChart(const Report& report) {
  Bars bars{fmt::format("change of the step for 10 % more of a number, %, at {:g} GPUs",
                        report.predictions.back().gpus),
            {},
            {}};
  for (size_t i = 0; i < std::min(kMostBars, report.effects.size()); ++i)
    if (std::abs(report.effects[i].stepChange) >= kLeastShown)
      bars.bars.push_back({report.effects[i].number->name, {100 * report.effects[i].stepChange}});
  return bars;
}

// A chart for each number of GPUs that was measured, or for all together.
std::vector<Chart> operationCharts(const Report& report) {
  std::map<double, Curve> curves;
  for (const OperationPrediction& p : report.operations)
    curves[p.operation.gpus].points.emplace_back(p.operation.bytes / 1048576, p.busGBps);
  std::vector<Chart> charts;
  for (auto& [gpus, curve] : curves) {
    curve.name = "predicted";
    Chart chart{fmt::format("bus bandwidth on {:g} GPUs", gpus), "MiB", "GB/s", false, {curve}, {}};
    if (const Curve measured = measuredCurve(report, gpus); !measured.points.empty())
      chart.curves.push_back(measured);
    charts.push_back(chart);
  }
  return charts;
}

Drawing chartsOf(const Report& report) {
  Drawing drawing;
  if (report.scenario.job.isOperation()) {
    for (const Chart& chart : operationCharts(report)) drawing.add(chart);
    return drawing;
  }
  drawing.add(efficiencyChart(report));
  drawing.add(throughputChart(report));
  drawing.add(partsChart(report));
  if (!report.effects.empty()) drawing.add(effectsChart(report));
  return drawing;
}

}  // namespace

std::string plotOf(const Report& report) {
  return chartsOf(report).ownFile();
}

std::string htmlOf(const Report& report) {
  return pageOf(report.scenario.job.name + " on " + report.scenario.cluster.name,
                chartsOf(report).inPage() + "<pre>" + escapedMarkup(textOf(report)) + "</pre>\n");
}

}  // namespace weft::plan
