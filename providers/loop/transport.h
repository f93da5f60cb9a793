// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "providers/loop/options.h"
#include "weft/transport.h"

// The in-process fabric: every LoopTransport of a process reaches every other one, so that two engines of one
// test, or two plugin contexts, talk without a network. Deterministic for one thread; safe for Queues on
// different threads. Thread-safe as the seam demands.
namespace weft::loop {

class LoopTransport : public Transport {
 public:
  explicit LoopTransport(LoopOptions options = {});

  std::string name() const override { return "loop"; }
  std::string version() const override { return {}; }
  Result<std::vector<DeviceInfo>> discover() override;
  std::vector<Refusal> refusals() const override { return {}; }
  Result<std::shared_ptr<Device>> open(const DeviceInfo& info) override;

  const LoopOptions& options() const { return options_; }
  // Counters; shared, so a test keeps them when it gives the Transport away.
  std::shared_ptr<const LoopStats> stats() const { return options_.stats; }

 private:
  LoopOptions options_;
};

std::unique_ptr<LoopTransport> makeTransport(LoopOptions options = {});

}  // namespace weft::loop
