// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <memory>

#include "providers/ofi/info.h"
#include "providers/ofi/memory.h"
#include "src/base/clock.h"
#include "src/base/config.h"
#include "weft/transport.h"

// A card through a provider. It owns the memory registry, the shared domain of hardware providers, and the
// hello target: a few bytes that any peer with one of our addresses may write to. Thread-safe.
namespace weft::ofi {

class OfiDevice : public Device {
 public:
  static Result<std::shared_ptr<Device>> open(std::shared_ptr<const Library> library, const Traits& traits,
                                              const Nic& nic, const Config& config, const Clock& clock);

  const DeviceInfo& info() const override { return nic_.info; }
  Result<std::unique_ptr<Memory>> registerMemory(const MemoryDesc& desc) override;
  Result<std::unique_ptr<Queue>> openQueue(const QueueDepths& wanted) override;

  // For this provider's own Queues and Endpoints.
  const std::shared_ptr<const Library>& library() const { return library_; }
  // The card has ended all its work: nothing is opened on it any more in this process.
  void markLost();
  // An error where the card is lost.
  Status usable() const;
  const Traits& traits() const { return traits_; }
  const Config& config() const { return config_; }
  const Clock& clock() const { return clock_; }
  fi_info& fabricInfo() const { return *nic_.fabricInfo; }
  Registry& registry() { return registry_; }
  Domain* sharedDomain() const { return domain_.get(); }          // null for software providers
  const OfiMemory& helloMemory() const { return *helloMemory_; }  // only of a device that has a queue
  std::byte* helloSource() { return helloPage_.get() + kHelloBytes / 2; }

  OfiDevice(std::shared_ptr<const Library> library, const Traits& traits, const Nic& nic,
            const Config& config, const Clock& clock);

 private:
  static constexpr size_t kHelloBytes = 128;
  Status start();

  const std::shared_ptr<const Library> library_;
  const Traits traits_;
  const Nic nic_;
  const Config config_;
  const Clock& clock_;
  std::atomic<bool> lost_{false};  // any queue sets it; nothing else depends on it
  std::unique_ptr<Domain> domain_;
  Registry registry_;
  std::shared_ptr<std::byte[]> helloPage_;  // peers write its first bytes
  std::unique_ptr<OfiMemory> helloMemory_;
};

}  // namespace weft::ofi
