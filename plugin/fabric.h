// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <string>

#include "src/core/net.h"
#include "src/tuner/policy.h"

// The findings of one life of the library: its settings, the transport, the devices, and the properties that
// NCCL is told. The first init makes it; afterwards only virtual devices are added. The owner (Plugin)
// serialises calls. Properties that were handed out never change.
namespace weft::plugin {

class Fabric {
 public:
  // Never fails: where nothing is usable there are no devices, and the log has the reason.
  static std::unique_ptr<Fabric> discover();

  const std::shared_ptr<core::Net>& net() const { return net_; }  // null when there are no devices
  int deviceCount() const { return static_cast<int>(properties_.size()); }
  // An error names the devices that there are. The pointer is valid as long as the fabric.
  Result<const core::Properties*> properties(int device) const;
  // A device of several cards. Returns its number.
  Result<int> makeVirtual(std::span<const int> members);
  // Without advice when there are no devices.
  const tuner::Policy& tunerPolicy() const { return tunerPolicy_; }

 private:
  Status open();
  Status readProperties();
  void announce() const;
  void announceGpuDirect() const;

  tuner::Policy tunerPolicy_;
  std::shared_ptr<core::Net> net_;
  std::deque<core::Properties> properties_;  // a deque, since its growth moves nothing
};

}  // namespace weft::plugin
