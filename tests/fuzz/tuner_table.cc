// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <string>
#include <string_view>

#include "src/tuner/table_file.h"
#include "src/tuner/tuner.h"
#include "tests/fuzz/target.h"

// What people name in WEFT_TUNER_TABLE. A table that is taken can be written and read again, and gives finite
// costs only.
using namespace weft;

namespace {

void checkCosts(const tuner::MeasuredTable& table) {
  tuner::Policy policy;
  policy.aside = false;
  policy.platform = tuner::platformOf(table, "fuzz");
  const tuner::Tuner tuner(policy, tuner::defaultGpuLatencies(), {64, 512});
  float costs[tuner::kAlgorithms * tuner::kProtocols] = {};
  tuner.price(static_cast<int>(tuner::Collective::allReduce), ~size_t{0}, 1 << 30,
              {costs, tuner::kAlgorithms, tuner::kProtocols});
  for (const float cost : costs) fuzz::demand(cost >= 0 && cost < 3.6e9F, "a cost is one that NCCL can use");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto table = tuner::parseTable({reinterpret_cast<const char*>(data), size});
  if (!table) {
    fuzz::demand(!table.error().message().empty(), "a refusal says why");
    return 0;
  }
  fuzz::demand(tuner::parseTable(tuner::tableText(*table)).operator bool(), "what was read can be written");
  checkCosts(*table);
  return 0;
}

std::vector<fuzz::Input> fuzz::seeds() {
  std::vector<Input> inputs;
  const tuner::MeasuredTable table{"ofi:efa", "2025-01-31", 2, 16, 15.25, 12.5, 4};
  for (const std::string& text :
       {tuner::tableText(table),
        std::string("weft-tuner-table 1\nprovider x\ndate y\nhosts 1\nranks 1\nstep_us 1e6\n"
                    "device_gbps 1e-5\ndevices 1048576\n")}) {
    const auto bytes = std::as_bytes(std::span(text));
    inputs.emplace_back(bytes.begin(), bytes.end());
  }
  return inputs;
}
