// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/tuner/tuner.h"

#include <algorithm>

// Our estimates in NCCL's table.
namespace weft::tuner {

namespace {

constexpr float kDearest = 3e9F;  // no cost of ours may look to NCCL as if the entry could not be had

bool canBeHad(const float* cost) {
  return cost && *cost >= 0;  // false for NaN as well
}

}  // namespace

float* CostTable::at(Algorithm algorithm, Protocol protocol) const {
  const auto a = static_cast<int>(algorithm);
  const auto p = static_cast<int>(protocol);
  if (!costs || a >= algorithms || p >= protocols) return nullptr;
  return costs + static_cast<ptrdiff_t>(a) * protocols + p;
}

Tuner::Tuner(Policy policy, GpuLatencies gpu, Shape shape)
    : policy_(std::move(policy)), gpu_(gpu), shape_(shape) {}

// Collectives within a node are left to NCCL.
bool Tuner::concerns(int collective) const {
  return !policy_.aside && shape_.valid() && shape_.nodes > 1 && collective >= 0 && collective < kCollectives;
}

std::optional<Estimate> Tuner::costOf(const Operation& operation) const {
  if (policy_.aside || !policy_.platform) return std::nullopt;
  Operation bounded = operation;
  bounded.pipelined = std::clamp(operation.pipelined, 1, kMostPipelined);
  return estimate(*policy_.platform, gpu_, shape_, bounded);
}

int Tuner::price(int collective, size_t bytes, int pipelined, const CostTable& table) const {
  if (!concerns(collective)) return 0;
  int written = 0;
  for (int a = 0; a < kAlgorithms; a++) {
    for (int p = 0; p < kProtocols; p++) {
      const Operation operation{Collective{collective}, Algorithm{a}, Protocol{p}, static_cast<double>(bytes),
                                pipelined};
      float* const cost = table.at(operation.algorithm, operation.protocol);
      if (!canBeHad(cost)) continue;
      const bool out = policy_.priceOutLl128 && operation.protocol == Protocol::ll128;
      const auto estimated = out ? std::nullopt : costOf(operation);
      if (!out && !estimated) continue;
      *cost = out ? std::max(*cost, kPricedOut) : std::min(static_cast<float>(estimated->us()), kDearest);
      written++;
    }
  }
  return written;
}

std::optional<Pick> Tuner::pick(int collective, size_t bytes, int pipelined, bool nvls) const {
  std::optional<Pick> best;
  if (!concerns(collective)) return best;
  for (const Algorithm algorithm : {Algorithm::tree, Algorithm::ring, Algorithm::nvlsTree}) {
    for (const Protocol protocol : {Protocol::ll, Protocol::simple}) {
      if (algorithm == Algorithm::nvlsTree && !nvls) continue;
      const auto cost =
          costOf({Collective{collective}, algorithm, protocol, static_cast<double>(bytes), pipelined});
      if (cost && (!best || cost->us() < best->us)) best = Pick{algorithm, protocol, cost->us()};
    }
  }
  return best;
}

}  // namespace weft::tuner
