// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "tools/plan/prediction.h"

// A job's measured points beside the prediction, and the numbers that bring them together. Pure functions;
// any thread.
namespace weft::plan {

struct Compared {
  Measured measured;
  double predicted = 0;
  bool fitted = false;  // a point that the fit has seen
  double error() const { return predicted / measured.value - 1; }
};

struct Comparison {
  std::vector<Compared> points;
  // Root of the mean square error and largest error: of the points that the fit has seen, and of all others.
  // A single GPU is left out, as it has no communication.
  double rmsFitted = 0;
  double rmsHeldOut = 0;
  double rms = 0;
  double worst = 0;
};
Comparison compare(const Scenario& scenario, double fitBelow, const Draws& draws);

// The scenario with its job's free numbers as the points of fewer than `below` GPUs want them: least squares
// of the relative errors, from a grid and then by the simplex of Nelder and Mead. An error names the field
// where a number is unknown or the points are too few.
Result<Scenario> fitted(const Scenario& scenario, double below, const Draws& draws);

}  // namespace weft::plan
