// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "providers/fault/device.h"
#include "providers/fault/options.h"
#include "weft/transport.h"

// Wraps any Transport and breaks it as its rules say; without rules it only hands things through. Keep
// `control()` to change rules at run time and to see what they hit. Thread-safe as the seam demands.
namespace weft::fault {

class FaultTransport : public Transport {
 public:
  FaultTransport(std::unique_ptr<Transport> inner, FaultOptions options);

  std::string name() const override { return "fault:" + inner_->name(); }
  std::string version() const override { return inner_->version(); }
  Result<std::vector<DeviceInfo>> discover() override;
  std::vector<Refusal> refusals() const override;
  Result<std::shared_ptr<Device>> open(const DeviceInfo& info) override;

  std::shared_ptr<FaultControl> control() const { return shared_->control; }

 private:
  Result<std::vector<DeviceInfo>> list();
  Result<int> railOf(const std::string& device);

  const std::unique_ptr<Transport> inner_;
  const std::shared_ptr<Shared> shared_;
  std::mutex mutex_;  // guards rails_
  std::vector<std::string> rails_;
};

std::unique_ptr<FaultTransport> makeTransport(std::unique_ptr<Transport> inner, FaultOptions options = {});

// Counters of every fault Transport of the process that still has a holder, a line a rule.
std::vector<std::string> report();

}  // namespace weft::fault
