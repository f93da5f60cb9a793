// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "providers/fault/control.h"
#include "providers/fault/directory.h"
#include "weft/transport.h"

// The Device decorator, and what all objects of one fault Transport share. Memory is the inner Device's own
// object: nothing is done to it. Thread-safe.
namespace weft::fault {

// The names that a rule's rail, device and lane are compared with.
struct Where {
  int rail = -1;
  std::string device;
  int lane = -1;
};

bool fits(const FaultRule& rule, const Where& where);

struct Shared {
  std::shared_ptr<FaultControl> control;
  std::shared_ptr<Directory> directory = Directory::shared();
  std::optional<Delivery> delivery;  // the strongest that may be announced
  std::atomic<int> lanes{0};         // Endpoints opened so far

  // Calls are off the data path: these lock.
  bool hit(FaultKind kind, const Where& where) const;
  Status call(FaultKind kind, const Where& where, const char* operation) const;
};

class FaultDevice : public Device {
 public:
  FaultDevice(std::shared_ptr<Device> inner, std::shared_ptr<Shared> shared, Where where);
  ~FaultDevice() override;  // logs what each rule hit so far: the application's logger is still there

  const DeviceInfo& info() const override { return info_; }
  Result<std::unique_ptr<Memory>> registerMemory(const MemoryDesc& desc) override;
  Result<std::unique_ptr<Queue>> openQueue(const QueueDepths& wanted) override;

  Device& inner() { return *inner_; }
  Shared& shared() { return *shared_; }
  const Where& where() const { return where_; }

 private:
  const std::shared_ptr<Device> inner_;
  const std::shared_ptr<Shared> shared_;
  const Where where_;
  DeviceInfo info_;
};

}  // namespace weft::fault
