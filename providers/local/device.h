// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>

#include "providers/common/key_table.h"
#include "providers/local/gpu_flights.h"
#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/mem/gpu/driver.h"
#include "src/mem/gpu/errands.h"
#include "weft/transport.h"

// This host's memory as a device, and the part of it that peers may reach. Its Queues outlive neither it nor
// its clock. Thread-safe: only the table, the flights and the errands change, and all lock.
namespace weft::local {

class LocalDevice : public Device {
 public:
  // `info.cudaMemory`: the device carries GPU memory too, by `driver`.
  LocalDevice(DeviceInfo info, const Config& config, const Clock& clock,
              std::shared_ptr<const mem::gpu::Driver> driver)
      : info_(std::move(info)),
        config_(config),
        clock_(clock),
        driver_(std::move(driver)),
        gpu_(driver_ ? driver_->gpuInUse().value_or(-1) : -1),
        table_(std::make_shared<KeyTable>()),
        flights_(std::make_shared<GpuFlights>(clock_)),
        errands_(std::make_shared<mem::gpu::Errands>(driver_)) {}

  const DeviceInfo& info() const override { return info_; }
  Result<std::unique_ptr<Memory>> registerMemory(const MemoryDesc& desc) override;
  Result<std::unique_ptr<Queue>> openQueue(const QueueDepths& wanted) override;

  const Config& config() const { return config_; }
  const Clock& clock() const { return clock_; }
  const std::shared_ptr<KeyTable>& table() const { return table_; }
  const std::shared_ptr<const mem::gpu::Driver>& driver() const { return driver_; }
  int gpu() const { return gpu_; }  // the GPU that this process uses; -1: none
  const std::shared_ptr<GpuFlights>& flights() const { return flights_; }
  const std::shared_ptr<mem::gpu::Errands>& errands() const { return errands_; }

 private:
  const DeviceInfo info_;
  const Config config_;
  const Clock& clock_;
  const std::shared_ptr<const mem::gpu::Driver> driver_;
  const int gpu_;
  // The keys of registered memory; a registration keeps the table alive.
  const std::shared_ptr<KeyTable> table_;
  const std::shared_ptr<GpuFlights> flights_;         // the copies that GPUs have under way
  const std::shared_ptr<mem::gpu::Errands> errands_;  // calls of the driver that may wait for kernels
};

}  // namespace weft::local
