// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/verbs/transport.h"

#include <cerrno>
#include <mutex>
#include <optional>

#include "providers/verbs/device.h"

// The ports of this machine, discovered once.
namespace weft::verbs {

namespace {

// Looks at the cards once, at the first question. A failure is asked again.
class VerbsTransport : public Transport {
 public:
  VerbsTransport(std::shared_ptr<const Library> library, const Config& config, const Clock& clock)
      : library_(std::move(library)), config_(config), clock_(clock) {}

  std::string name() const override { return "verbs"; }
  std::string version() const override { return "libibverbs"; }
  Result<std::vector<DeviceInfo>> discover() override;
  std::vector<Refusal> refusals() const override;
  Result<std::shared_ptr<Device>> open(const DeviceInfo& info) override;

 private:
  Status look();  // the lock is held

  const std::shared_ptr<const Library> library_;
  const Config config_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  std::optional<Catalogue> catalogue_;
  std::vector<Refusal> failures_;
};

Status VerbsTransport::look() {
  if (catalogue_) return {};
  auto catalogue = discoverPorts(library_, config_);
  if (!catalogue) {
    failures_ = {{"verbs", catalogue.error().message()}};
    return catalogue.takeError();
  }
  failures_.clear();
  catalogue_ = catalogue.take();
  return {};
}

Result<std::vector<DeviceInfo>> VerbsTransport::discover() {
  const std::lock_guard lock(mutex_);
  TRY(look());
  std::vector<DeviceInfo> infos;
  for (const Port& port : catalogue_->ports) infos.push_back(port.info);
  return infos;
}

std::vector<Refusal> VerbsTransport::refusals() const {
  const std::lock_guard lock(mutex_);
  return catalogue_ ? catalogue_->refusals : failures_;
}

Result<std::shared_ptr<Device>> VerbsTransport::open(const DeviceInfo& info) {
  const std::lock_guard lock(mutex_);
  TRY(look());
  for (const Port& port : catalogue_->ports)
    if (port.info.name == info.name) return VerbsDevice::open(library_, port, clock_);
  return Error(Code::unavailable, "opening a device",
               "verbs has no device " + info.name + "; weft info lists them");
}

}  // namespace

Result<std::unique_ptr<Transport>> makeTransport(const Config& config, const Clock& clock) {
  TRY(auto library, Library::open(config.libibverbs));
  return makeTransport(std::move(library), config, clock);
}

std::optional<int> cardsHere(const Config& config) {
  const auto library = Library::open(config.libibverbs);
  if (!library) return std::nullopt;
  int count = 0;
  ibv_device** const list = (*library)->getDeviceList(&count);
  if (list == nullptr)
    return errno == ENOSYS ? std::optional<int>(0) : std::nullopt;  // a kernel without RDMA
  (*library)->freeDeviceList(list);
  return count;
}

std::unique_ptr<Transport> makeTransport(std::shared_ptr<const Library> library, const Config& config,
                                         const Clock& clock) {
  return std::make_unique<VerbsTransport>(std::move(library), config, clock);
}

}  // namespace weft::verbs
