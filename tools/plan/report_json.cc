// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/json/json.h"
#include "tools/plan/report.h"

namespace weft::plan {

namespace {

Json predictionJson(const Prediction& p) {
  Json json{{"gpus", p.gpus},
            {"step_us", p.stepUs},
            {"step_standard_error_us", p.errorUs},
            {"step_5_percent_us", p.lowUs},
            {"step_95_percent_us", p.highUs},
            {"efficiency", p.efficiency},
            {"throughput", p.throughput},
            {"communication_us", p.step.communication.us()},
            {"latency_us", p.step.communication.latencyUs},
            {"transfer_us", p.step.communication.transferUs},
            {"hidden_us", p.step.hiddenUs()},
            {"exposed_us", p.step.exposedUs},
            {"contended_us", p.step.contendedUs},
            {"skew_us", p.skewUs},
            {"algorithm", nameOf(p.algorithm)},
            {"limit", nameOf(p.limit)}};
  if (p.tflops > 0) json.set("tflops_per_gpu", p.tflops);
  return json;
}

Json operationJson(const OperationPrediction& p) {
  return {{"gpus", p.operation.gpus},        {"bytes", p.operation.bytes},       {"us", p.cost.us()},
          {"latency_us", p.cost.latencyUs},  {"transfer_us", p.cost.transferUs}, {"busbw_GBps", p.busGBps},
          {"algorithm", nameOf(p.algorithm)}};
}

Json comparisonJson(const Report& report) {
  const Comparison& comparison = *report.comparison;
  Json points = Json::array();
  for (const Compared& one : comparison.points)
    points.append({{"gpus", one.measured.gpus},
                   {"bytes", one.measured.bytes},
                   {"measured", one.measured.value},
                   {"predicted", one.predicted},
                   {"error", one.error()},
                   {"held_out", report.fitBelow > 0 && !one.fitted}});
  Json json{{"source", report.scenario.job.measuredSource},
            {"points", points},
            {"rms", comparison.rms},
            {"worst", comparison.worst}};
  if (report.fitBelow <= 0) return json;
  json.set("rms_fitted", comparison.rmsFitted);
  json.set("rms_held_out", comparison.rmsHeldOut);
  json.set("fit_below_gpus", report.fitBelow);
  Json numbers;
  for (const std::string& name : report.scenario.job.freeNumbers)
    numbers.set(name.c_str(), numberNamed(name)->get(report.scenario));
  json.set("fitted", numbers);
  return json;
}

Json effectsJson(const std::vector<Effect>& effects) {
  Json list = Json::array();
  for (const Effect& effect : effects)
    list.append({{"number", effect.number->name},
                 {"value", effect.value},
                 {"unit", effect.number->unit},
                 {"step_change_for_10_percent_more", effect.stepChange}});
  return list;
}

}  // namespace

std::string jsonOf(const Report& report) {
  const Scenario& scenario = report.scenario;
  Json json{{"job", scenario.job.name},
            {"cluster", scenario.cluster.name},
            {"unit", scenario.job.unit},
            {"seed", report.draws.seed},
            {"draws", report.draws.count}};
  Json predictions = Json::array();
  for (const Prediction& prediction : report.predictions) predictions.append(predictionJson(prediction));
  for (const OperationPrediction& one : report.operations) predictions.append(operationJson(one));
  json.set("predictions", predictions);
  if (!report.effects.empty()) json.set("sensitivity", effectsJson(report.effects));
  if (report.railLoss)
    json.set("rail_loss", {{"step_before_us", report.railLoss->before},
                           {"step_after_us", report.railLoss->after},
                           {"once_us", report.railLoss->onceUs},
                           {"until_repair_us", report.railLoss->untilRepairUs}});
  if (report.recorded)
    json.set("recorded", {{"ranks", report.recorded->ranks},
                          {"messages", report.recorded->messages},
                          {"bytes", report.recorded->bytes},
                          {"network_us", report.recorded->network.us()}});
  if (report.comparison) json.set("comparison", comparisonJson(report));
  return json.text() + "\n";
}

}  // namespace weft::plan
