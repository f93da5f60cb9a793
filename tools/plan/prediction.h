// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tools/plan/numbers.h"
#include "tools/plan/step.h"

// The prediction for a number of GPUs: the step of stepOf under skew, drawn many times (E7, E8). The same
// seed gives the same draws everywhere. Pure functions; any thread.
namespace weft::plan {

struct Draws {
  uint64_t seed = 1;
  int count = 400;
  std::function<void()> computed = {};  // called after each step that was computed; empty: nobody wants it
};

// The cause of most of the lost time.
enum class Limit { computing, contention, skew, overlap, latency, bandwidth };
const char* nameOf(Limit limit);

struct Prediction {
  double gpus = 0;
  Step step;           // without skew
  double stepUs = 0;   // the mean over the draws
  double errorUs = 0;  // of that mean, one standard error
  double lowUs = 0;    // 5 and 95 of 100 draws
  double highUs = 0;
  double skewUs = 0;
  double efficiency = 0;                  // computing without the others over the step
  double throughput = 0;                  // samples a second of all GPUs
  double tflops = 0;                      // of a GPU; 0: the job does not say
  Algorithm algorithm = Algorithm::best;  // of the largest operation
  Limit limit = Limit::computing;
};
Prediction predict(const Scenario& scenario, double gpus, const Draws& draws);

// A collective operation by itself.
struct OperationPrediction {
  Operation operation;
  Algorithm algorithm = Algorithm::best;
  Cost cost;
  double busGBps = 0;
};
OperationPrediction predictOperation(const Scenario& scenario, double gpus, double bytes);

// A step's time when a number of the scenario is 10 % larger.
struct Effect {
  const Number* number = nullptr;
  double value = 0;
  double stepChange = 0;  // share of the step's time; below 0: it is faster
};
// The largest effect first; numbers that are 0 are left out.
std::vector<Effect> sensitivity(const Scenario& scenario, double gpus, const Draws& draws);

// The cost of a rail's loss (E12).
struct RailLoss {
  double before = 0;  // us of a step
  double after = 0;
  double onceUs = 0;         // detection and what was outstanding
  double untilRepairUs = 0;  // of the steps until the repair
};
RailLoss railLoss(const Scenario& scenario, double gpus, const Draws& draws);

}  // namespace weft::plan
