// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/ofi/transport.h"

#include <mutex>
#include <optional>

#include "providers/ofi/device.h"
#include "providers/ofi/info.h"
#include "providers/ofi/lines.h"

// The cards of one provider, discovered once.
namespace weft::ofi {

namespace {

class OfiTransport : public Transport {
 public:
  OfiTransport(std::shared_ptr<const Library> library, const std::string& wanted, const Config& config,
               const Clock& clock)
      : library_(std::move(library)), wanted_(wanted), config_(config), clock_(clock) {}

  std::string name() const override;
  std::string version() const override { return library_->versionText(); }
  Result<std::vector<DeviceInfo>> discover() override;
  std::vector<Refusal> refusals() const override;
  Result<std::shared_ptr<Device>> open(const DeviceInfo& info) override;

 private:
  Status look();  // the lock is held; asks libfabric at the first call

  const std::shared_ptr<const Library> library_;
  const std::string wanted_;
  const Config config_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  std::optional<Catalogue> catalogue_;
  std::vector<Refusal> failures_;
};

std::string OfiTransport::name() const {
  const std::lock_guard lock(mutex_);
  return "ofi:" + (catalogue_ ? catalogue_->traits.name : traitsOf(wanted_).name);
}

Status OfiTransport::look() {
  if (catalogue_) return {};
  auto catalogue = discoverNics(*library_, wanted_, config_);
  if (!catalogue) {
    failures_ = {{"ofi:" + wanted_, catalogue.error().message()}};
    return catalogue.takeError();
  }
  failures_.clear();
  catalogue_ = catalogue.take();
  CardTrials trials;
  for (Nic& nic : catalogue_->nics) {
    const CardTrial seen = trials.of(library_, catalogue_->traits, nic);
    nic.info.lines128InOrder = seen.promisesLines;
    if (!seen.abilities.empty()) nic.info.abilities = seen.abilities;
  }
  return {};
}

Result<std::vector<DeviceInfo>> OfiTransport::discover() {
  const std::lock_guard lock(mutex_);
  TRY(look());
  std::vector<DeviceInfo> infos;
  for (const Nic& nic : catalogue_->nics) infos.push_back(nic.info);
  return infos;
}

std::vector<Refusal> OfiTransport::refusals() const {
  const std::lock_guard lock(mutex_);
  return catalogue_ ? catalogue_->refusals : failures_;
}

Result<std::shared_ptr<Device>> OfiTransport::open(const DeviceInfo& info) {
  const std::lock_guard lock(mutex_);
  TRY(look());
  for (const Nic& nic : catalogue_->nics)
    if (nic.info.name == info.name)
      return OfiDevice::open(library_, catalogue_->traits, nic, config_, clock_);
  return Error(Code::unavailable, "opening a device",
               "ofi:" + catalogue_->traits.name + " has no device " + info.name + "; weft info lists them");
}

}  // namespace

Result<std::unique_ptr<Transport>> makeTransport(const std::string& name, const Config& config,
                                                 const Clock& clock) {
  TRY(auto library, Library::open(config.libfabric));
  return std::unique_ptr<Transport>(std::make_unique<OfiTransport>(std::move(library), name, config, clock));
}

}  // namespace weft::ofi
