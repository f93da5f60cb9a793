// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/plan/examples.h"

#include "tests/support/catch.h"

namespace weft::plan {

std::string exampleFile(const std::string& name) {
  return std::string(WEFT_PLAN_EXAMPLES) + "/" + name + ".json";  // the build says where they are
}

Scenario example(const std::string& job, const std::string& cluster) {
  auto readIn = readJob(exampleFile(job + ".job"));
  auto around = readCluster(exampleFile(cluster + ".cluster"));
  if (!readIn) FAIL(readIn.error().message());
  if (!around) FAIL(around.error().message());
  return scenarioOf(readIn.take(), around.take());
}

}  // namespace weft::plan
