// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/plan/fit.h"

// A plan's results and how they are written: as text, as JSON and as one HTML file with plots. Pure
// functions; any thread.
namespace weft::plan {

// The messages of a recorded job.
struct Recorded {
  double ranks = 0;
  double messages = 0;  // received by all ranks
  double bytes = 0;
  Cost network;  // without any computing, as weft perf --replay repeats it
};

struct Report {
  Scenario scenario;
  Draws draws;
  std::vector<Prediction> predictions;          // of a job, by GPUs
  std::vector<OperationPrediction> operations;  // of a job that is one collective operation
  std::vector<Effect> effects;                  // at the most GPUs
  std::optional<RailLoss> railLoss;             // where a node has another rail
  std::optional<Recorded> recorded;
  std::optional<Comparison> comparison;  // where the job has measured points
  double fitBelow = 0;                   // GPUs; 0: nothing was fitted
};

constexpr double kLeastShown = 5e-6;  // of an effect, as a share of the step

std::string textOf(const Report& report);
std::string jsonOf(const Report& report);
std::string htmlOf(const Report& report);
std::string plotOf(const Report& report);  // the plots alone, as SVG

}  // namespace weft::plan
