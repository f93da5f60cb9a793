// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/plan/prediction.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace weft::plan {

namespace {

// The quantile of the normal distribution, for the probability 1 - `tail` with a tail of at most a half:
// Newton's method on the complementary error function, which keeps its digits far out.
double normalQuantile(double tail) {
  constexpr double kRoot = 1.4142135623730951;
  constexpr double kDensity = 0.3989422804014327;
  double x = std::sqrt(std::max(0.0, -2 * std::log(2 * tail)));
  for (int i = 0; i < 30; ++i) {
    const double difference = 0.5 * std::erfc(x / kRoot) - tail;
    x += difference / (kDensity * std::exp(-x * x / 2));
  }
  return x;
}

// The largest of n draws of a normal distribution has the distribution function's n-th power for its own, so
// one uniform number is enough for any n.
double largestOf(double n, double uniform) {
  const double tail = -std::expm1(std::log(uniform) / n);
  return tail <= 0.5 ? normalQuantile(tail) : -normalQuantile(1 - tail);
}

// Uniform in (0, 1). Not the library's distribution, which differs from one library to another.
double uniformOf(std::mt19937_64* engine) {
  return (static_cast<double>((*engine)() >> 11) + 0.5) * 0x1p-53;
}

// The times of all draws, sorted.
std::vector<double> drawnSteps(const Scenario& scenario, double gpus, const Draws& draws) {
  const double sigma = gpus > 1 ? scenario.cluster.sigma : 0;
  std::mt19937_64 engine(draws.seed);
  std::vector<double> times;
  for (int i = 0; i < (sigma > 0 ? draws.count : 1); ++i) {
    const double slowest = sigma > 0 ? std::max(0.0, 1 + sigma * largestOf(gpus, uniformOf(&engine))) : 1;
    times.push_back(stepOf(scenario.job, scenario.cluster, gpus, slowest).totalUs);
    if (draws.computed) draws.computed();
  }
  std::sort(times.begin(), times.end());
  return times;
}

double meanOf(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double errorOf(const std::vector<double>& values, double mean) {
  if (values.size() < 2) return 0;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  const auto count = static_cast<double>(values.size());
  return std::sqrt(squares / (count - 1) / count);
}

double quantileOf(const std::vector<double>& sorted, double share) {
  return sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1) + 0.5)];
}

// The operation that moves most. Of sharded parameters, the gather of a layer.
Operation largestOperation(const Job& job, double gpus) {
  if (job.sharded)
    return {Collective::allGather, job.algorithm, gpus,
            job.sharded->parameters * job.sharded->bytesPerElement / job.sharded->layers};
  double most = 0;
  for (const Bucket& bucket : job.buckets) most = std::max(most, bucket.bytes);
  return {job.collective, job.algorithm, gpus, most};
}

// Exposed communication that would fit beside the computing is a matter of overlap, but for the last
// bucket's.
bool couldHide(const Scenario& scenario, const Prediction& prediction) {
  const Job& job = scenario.job;
  const double beside = job.sharded ? job.forwardUs + job.backwardUs : job.backwardUs;
  double last = 0;
  if (!job.buckets.empty())
    last =
        costOf(scenario.cluster, {job.collective, job.algorithm, prediction.gpus, job.buckets.back().bytes})
            .us();
  return prediction.step.communication.us() <= beside && prediction.step.exposedUs > 2 * last;
}

Limit limitOf(const Scenario& scenario, const Prediction& prediction) {
  constexpr double kNegligible = 0.01;
  const Step& step = prediction.step;
  const double worst = std::max({step.contendedUs, step.exposedUs, prediction.skewUs});
  if (worst < kNegligible * prediction.stepUs) return Limit::computing;
  if (worst == prediction.skewUs) return Limit::skew;
  if (worst == step.contendedUs) return Limit::contention;
  if (couldHide(scenario, prediction)) return Limit::overlap;
  return step.communication.latencyUs > step.communication.transferUs ? Limit::latency : Limit::bandwidth;
}

}  // namespace

const char* nameOf(Limit limit) {
  constexpr const char* kNames[] = {"computing", "contention", "skew", "overlap", "latency", "bandwidth"};
  return kNames[static_cast<size_t>(limit)];
}

Prediction predict(const Scenario& scenario, double gpus, const Draws& draws) {
  const Job& job = scenario.job;
  Prediction made;
  made.gpus = gpus;
  made.step = stepOf(job, scenario.cluster, gpus, 1);
  const std::vector<double> times = drawnSteps(scenario, gpus, draws);
  made.stepUs = meanOf(times);
  made.errorUs = errorOf(times, made.stepUs);
  made.lowUs = quantileOf(times, 0.05);
  made.highUs = quantileOf(times, 0.95);
  made.skewUs = made.stepUs - made.step.totalUs;
  made.efficiency = job.computeUs() / made.stepUs;
  made.throughput = gpus * job.samplesPerGpu / made.stepUs * 1e6;
  made.tflops = job.flopPerGpu / made.stepUs / 1e6;
  made.algorithm = chosen(scenario.cluster, largestOperation(job, gpus));
  made.limit = limitOf(scenario, made);
  return made;
}

OperationPrediction predictOperation(const Scenario& scenario, double gpus, double bytes) {
  OperationPrediction made;
  made.operation = {scenario.job.collective, scenario.job.algorithm, gpus, bytes};
  made.algorithm = chosen(scenario.cluster, made.operation);
  made.cost = costOf(scenario.cluster, made.operation);
  made.busGBps = busGBps(made.operation, made.cost.us());
  return made;
}

std::vector<Effect> sensitivity(const Scenario& scenario, double gpus, const Draws& draws) {
  constexpr double kMore = 1.1;
  const double before = predict(scenario, gpus, draws).stepUs;
  std::vector<Effect> effects;
  for (const Number& number : numbers()) {
    const double value = number.get(scenario);
    if (!(value > 0)) continue;
    Scenario varied = scenario;
    number.set(&varied, value * kMore);
    effects.push_back({&number, value, predict(varied, gpus, draws).stepUs / before - 1});
  }
  std::stable_sort(effects.begin(), effects.end(), [](const Effect& a, const Effect& b) {
    return std::abs(a.stepChange) > std::abs(b.stepChange);
  });
  return effects;
}

RailLoss railLoss(const Scenario& scenario, double gpus, const Draws& draws) {
  Scenario less = scenario;
  less.cluster.network.railsLost += 1;
  const Outage& outage = scenario.cluster.outage;
  RailLoss loss;
  loss.before = predict(scenario, gpus, draws).stepUs;
  loss.after = predict(less, gpus, draws).stepUs;
  loss.onceUs = outage.detectUs + outage.outstandingBytes / (less.cluster.network.nodeGBps() * 1e3);
  const double steps = outage.repairSeconds * 1e6 / loss.after;
  loss.untilRepairUs = steps * (loss.after - loss.before);
  return loss;
}

}  // namespace weft::plan
