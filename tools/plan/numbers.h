// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>
#include <vector>

#include "tools/plan/job.h"

// The numbers of a job and a cluster by their names, for what varies them: sensitivity and fit. Pure
// functions; any thread.
namespace weft::plan {

struct Scenario {
  Job job;
  Cluster cluster;
};

// The job's own kappa and sigma come before the cluster's.
Scenario scenarioOf(Job job, Cluster cluster);

struct Number {
  const char* name;  // as in the files, in the files' unit
  const char* unit;
  double (*get)(const Scenario& scenario);
  void (*set)(Scenario* scenario, double value);
  double least;  // that a fit tries
  double most;
  bool logarithmic;
};

const std::vector<Number>& numbers();
const Number* numberNamed(const std::string& name);  // null: there is none

}  // namespace weft::plan
