// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>

#include "tests/support/catch.h"
#include "tools/plan/fit.h"

// The jobs and clusters that are installed as examples. One thread.
namespace weft::plan {

inline std::string exampleFile(const std::string& name) {
  return std::string(WEFT_PLAN_EXAMPLES) + "/" + name + ".json";
}

inline Scenario example(const std::string& job, const std::string& cluster) {
  auto readIn = readJob(exampleFile(job + ".job"));
  auto around = readCluster(exampleFile(cluster + ".cluster"));
  if (!readIn) FAIL(readIn.error().message());
  if (!around) FAIL(around.error().message());
  return scenarioOf(readIn.take(), around.take());
}

}  // namespace weft::plan
