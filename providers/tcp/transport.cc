// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/tcp/transport.h"

#include <mutex>
#include <optional>

#include "providers/tcp/device.h"

namespace weft::tcp {

namespace {

class TcpTransport : public Transport {
 public:
  TcpTransport(const Config& config, const Clock& clock) : config_(config), clock_(clock) {}

  std::string name() const override { return "tcp"; }
  std::string version() const override { return {}; }
  Result<std::vector<DeviceInfo>> discover() override;
  std::vector<Refusal> refusals() const override;
  Result<std::shared_ptr<Device>> open(const DeviceInfo& info) override;

 private:
  Status look();  // under the lock; asks the kernel the first time

  const Config config_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  std::optional<Catalogue> catalogue_;
};

Status TcpTransport::look() {
  if (catalogue_) return {};
  TRY(catalogue_, discoverNics(config_));
  return {};
}

Result<std::vector<DeviceInfo>> TcpTransport::discover() {
  const std::lock_guard lock(mutex_);
  TRY(look());
  std::vector<DeviceInfo> infos;
  for (const Nic& nic : catalogue_->nics) infos.push_back(nic.info);
  return infos;
}

std::vector<Refusal> TcpTransport::refusals() const {
  const std::lock_guard lock(mutex_);
  return catalogue_ ? catalogue_->refusals : std::vector<Refusal>{};
}

Result<std::shared_ptr<Device>> TcpTransport::open(const DeviceInfo& info) {
  const std::lock_guard lock(mutex_);
  TRY(look());
  TRY(const Protection protection, readProtection(config_));
  for (const Nic& nic : catalogue_->nics)
    if (nic.info.name == info.name)
      return std::shared_ptr<Device>(std::make_shared<TcpDevice>(nic, config_, protection, clock_));
  return Error(Code::unavailable, "opening a device",
               "tcp has no device " + info.name + "; weft info lists them");
}

}  // namespace

std::unique_ptr<Transport> makeTransport(const Config& config, const Clock& clock) {
  return std::make_unique<TcpTransport>(config, clock);
}

}  // namespace weft::tcp
