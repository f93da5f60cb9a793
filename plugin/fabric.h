// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <string>

#include "src/core/net.h"
#include "src/tuner/policy.h"

// The findings of one life of the library: its settings, the transport taken, the devices and what NCCL is
// told about them. Made by the first init; afterwards it only grows by virtual devices. The owner (Plugin)
// serialises calls; what `properties` points to never changes.
namespace weft::plugin {

class Fabric {
 public:
  // Never fails: where nothing is usable there are no devices, and the reason is in the log.
  static std::unique_ptr<Fabric> discover();

  const std::shared_ptr<core::Net>& net() const { return net_; }  // null when there are no devices
  int deviceCount() const { return static_cast<int>(properties_.size()); }
  Result<const core::Properties*> properties(int device) const;
  Result<int> makeVirtual(std::span<const int> members);
  const tuner::Policy& tunerPolicy() const { return tunerPolicy_; }  // aside when there are no devices

 private:
  Status open();
  Status readProperties();
  void announce() const;
  void announceGpuDirect() const;

  tuner::Policy tunerPolicy_;
  std::shared_ptr<core::Net> net_;
  std::deque<core::Properties> properties_;  // a deque: growing moves nothing
};

}  // namespace weft::plugin
