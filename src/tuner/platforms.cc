// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/tuner/platforms.h"

// The table of platforms. Each number names its source beside it.
namespace weft::tuner {

namespace {

constexpr const char* kAwsModel = "aws-ofi-nccl src/tuner/nccl_ofi_model.cpp, net_lat";
constexpr const char* kAwsCompletion =
    "aws-ofi-nccl src/tuner/nccl_ofi_model.cpp, net_lat + 3 us of net_comp_overhead";
constexpr const char* kAwsNvlsTree =
    "aws-ofi-nccl src/tuner/nccl_ofi_model.cpp, intranode_bw (20 GiB/s) x 8 channels";
constexpr const char* kHopperLl = "NCCL 2.30.7 src/graph/tuning.cc, llMaxBws of Hopper";

// NCCL's all-gather on 2 to 32 nodes takes (ranks - 1) x 9.07 us + bytes x (ranks - 1) / ranks / 332 GB/s,
// within 9 % (rms). Of 8 steps, 7 stay on NVLink at 3.4 us each; 48.8 us are left for the step between nodes.
constexpr const char* kP5Fit =
    "fitted to crazyguitar/aws-gpu-communication-benchmark: NCCL all-gather on p5.48xlarge, 2 to 32 nodes";

// p5e has the cards of p5, and aws-ofi-nccl has one row for both.
Platform p5() {
  Platform platform;
  platform.name = "p5";
  platform.hopUs = {Number{20, kAwsModel}, Number{20, kAwsModel}, Number{48.8, kP5Fit}};
  platform.nodeGBps = {332, kP5Fit};
  platform.nvlsTreeGBps = {171.8, kAwsNvlsTree};
  platform.llGBps = {Number{45, kHopperLl}, Number{35, kHopperLl}};
  return platform;
}

Platform p5en() {
  Platform platform;
  platform.name = "p5en";
  platform.hopUs = {Number{18, kAwsModel}, Number{18, kAwsModel}, Number{21, kAwsCompletion}};
  platform.nodeGBps = {
      400, "aws-ofi-nccl src/tuner: 25 GB/s a rail, 2 rails for each of 8 GPUs (line rate, not measured)"};
  platform.nvlsTreeGBps = {171.8, kAwsNvlsTree};
  platform.llGBps = {Number{45, kHopperLl}, Number{35, kHopperLl}};
  return platform;
}

struct Row {
  const char* machine;
  const char* fabric;  // a prefix of the fabric's name
  Platform (*make)();
};

constexpr Row kRows[] = {
    {"p5.48xlarge", "ofi:efa", &p5},
    {"p5e.48xlarge", "ofi:efa", &p5},
    {"p5en.48xlarge", "ofi:efa", &p5en},
};

}  // namespace

std::optional<Platform> findPlatform(const std::string& machine, const std::string& fabric) {
  for (const Row& row : kRows)
    if (machine == row.machine && fabric.starts_with(row.fabric)) return row.make();
  return std::nullopt;
}

std::vector<std::string> knownMachines() {
  std::vector<std::string> names;
  for (const Row& row : kRows) names.emplace_back(row.machine);
  return names;
}

}  // namespace weft::tuner
