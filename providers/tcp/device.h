// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>

#include "providers/common/key_table.h"
#include "providers/tcp/interfaces.h"
#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/base/crypto/protection.h"
#include "weft/transport.h"

// A network interface, and the memory that peers may reach over it. Thread-safe: nothing but the table of
// regions changes.
namespace weft::tcp {

class TcpDevice : public Device {
 public:
  TcpDevice(Nic nic, const Config& config, const Protection& protection, const Clock& clock)
      : nic_(std::move(nic)),
        config_(config),
        protection_(protection),
        clock_(clock),
        regions_(std::make_shared<KeyTable>()) {}

  const DeviceInfo& info() const override { return nic_.info; }
  Result<std::unique_ptr<Memory>> registerMemory(const MemoryDesc& desc) override;
  Result<std::unique_ptr<Queue>> openQueue(const QueueDepths& wanted) override;

  int speedMbps() const { return nic_.speedKnown ? nic_.info.speedMbps : 0; }  // 0: unknown
  const SocketAddress& address() const { return nic_.address; }
  const Config& config() const { return config_; }
  const Protection& protection() const { return protection_; }
  const Clock& clock() const { return clock_; }
  const std::shared_ptr<KeyTable>& regions() const { return regions_; }

 private:
  const Nic nic_;
  const Config config_;
  const Protection protection_;
  const Clock& clock_;
  const std::shared_ptr<KeyTable> regions_;
};

}  // namespace weft::tcp
