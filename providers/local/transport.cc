// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/local/transport.h"

#include <unistd.h>

#include "providers/local/device.h"
#include "providers/local/shared.h"
#include "src/base/process.h"
#include "src/base/random.h"
#include "src/topo/nic_facts.h"

// The device "local", after a trial that this host can share memory at all.
namespace weft::local {

namespace {

constexpr const char* kName = "local";
// Rough values for NCCL's choice among networks; it only compares them.
constexpr int kSpeedMbps = 100000;
constexpr float kLatencyUs = 0.5f;

DeviceInfo describe(const Config& config) {
  DeviceInfo info;
  info.name = kName;
  info.provider = kName;
  info.address = hostName();
  info.guid = topo::madeUpGuid(hostName(), kName);
  info.speedMbps = kSpeedMbps;
  info.latencyUs = kLatencyUs;
  info.delivery = Delivery::always;
  info.sharedGpu = config.localGpu;
  if (!info.sharedGpu)
    info.withoutGpu =
        "shared memory is reached by this machine's processors; WEFT_LOCAL_GPU=1 has GPU memory shared, too";
  info.maxWriteBytes = kMaxWriteBytes;
  return info;
}

// An inbox has to be possible to make here, and to find in the way of a peer.
Status tryOut() {
  Nonce nonce;
  fillRandom(nonce);
  TRY(const SharedInbox inbox, SharedInbox::create(nonce));
  TRY(const SharedInbox found, SharedInbox::find({::getpid(), inbox.fd(), nonce, processNonce()}));
  return {};
}

class LocalTransport : public Transport {
 public:
  LocalTransport(const Config& config, const Clock& clock) : config_(config), clock_(clock) {
    if (Status works = tryOut(); !works) refusals_.push_back({kName, works.error().message(), true});
  }

  std::string name() const override { return kName; }
  std::string version() const override { return {}; }
  Result<std::vector<DeviceInfo>> discover() override {
    if (!refusals_.empty()) return std::vector<DeviceInfo>{};
    return std::vector<DeviceInfo>{describe(config_)};
  }
  std::vector<Refusal> refusals() const override { return refusals_; }
  Result<std::shared_ptr<Device>> open(const DeviceInfo& info) override {
    if (info.name == kName && refusals_.empty()) {
      DeviceInfo made = describe(config_);
      made.cudaMemory = info.cudaMemory;
      made.sharedGpu = info.sharedGpu;
      auto driver = made.cudaMemory ? mem::gpu::Driver::ofProcess(config_.libcuda) : nullptr;
      return std::shared_ptr<Device>(
          std::make_shared<LocalDevice>(std::move(made), config_, clock_, std::move(driver)));
    }
    return Error(
        Code::unavailable, "opening a device",
        refusals_.empty() ? "local has one device, \"local\", and not " + info.name : refusals_.front().why);
  }

 private:
  const Config config_;
  const Clock& clock_;
  std::vector<Refusal> refusals_;  // fixed by the constructor
};

}  // namespace

std::unique_ptr<Transport> makeTransport(const Config& config, const Clock& clock) {
  return std::make_unique<LocalTransport>(config, clock);
}

}  // namespace weft::local
