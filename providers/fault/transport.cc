// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/fault/transport.h"

#include <algorithm>

namespace weft::fault {

namespace {

// `early` breaks the promise of a device whose completions always mean delivered, so such a device is not
// announced as one.
std::optional<Delivery> announced(const FaultOptions& options) {
  if (options.delivery) return options.delivery;
  const auto early = [](const FaultRule& rule) { return rule.kind == FaultKind::early; };
  if (std::any_of(options.rules.begin(), options.rules.end(), early)) return Delivery::selectable;
  return std::nullopt;
}

std::shared_ptr<Shared> share(FaultOptions& options) {
  auto shared = std::make_shared<Shared>();
  shared->control = options.control ? options.control : std::make_shared<FaultControl>(options.seed);
  shared->delivery = announced(options);
  for (FaultRule& rule : options.rules) shared->control->add(rule);
  shared->directory->enter(shared->control);
  return shared;
}

}  // namespace

FaultTransport::FaultTransport(std::unique_ptr<Transport> inner, FaultOptions options)
    : inner_(std::move(inner)), shared_(share(options)) {}

Result<std::vector<DeviceInfo>> FaultTransport::list() {
  TRY(auto infos, inner_->discover());
  const std::lock_guard lock(mutex_);
  rails_.clear();
  for (DeviceInfo& info : infos) {
    rails_.push_back(info.name);
    if (shared_->delivery) info.delivery = std::min(info.delivery, *shared_->delivery);
  }
  return infos;
}

Result<std::vector<DeviceInfo>> FaultTransport::discover() {
  TRY(shared_->call(FaultKind::discover, {}, "looking for devices"));
  if (shared_->hit(FaultKind::noDevice, {})) return std::vector<DeviceInfo>();
  return list();
}

std::vector<Refusal> FaultTransport::refusals() const {
  return inner_->refusals();
}

Result<int> FaultTransport::railOf(const std::string& device) {
  const auto find = [&] {
    const std::lock_guard lock(mutex_);
    const auto at = std::find(rails_.begin(), rails_.end(), device);
    return at == rails_.end() ? -1 : static_cast<int>(at - rails_.begin());
  };
  const int rail = find();
  if (rail >= 0) return rail;
  TRY(list());
  return find();
}

Result<std::shared_ptr<Device>> FaultTransport::open(const DeviceInfo& info) {
  TRY(const int rail, railOf(info.name));
  Where where{.rail = rail, .device = info.name};
  TRY(shared_->call(FaultKind::open, where, "opening a device"));
  TRY(auto inner, inner_->open(info));
  return std::shared_ptr<Device>(std::make_shared<FaultDevice>(std::move(inner), shared_, std::move(where)));
}

std::unique_ptr<FaultTransport> makeTransport(std::unique_ptr<Transport> inner, FaultOptions options) {
  return std::make_unique<FaultTransport>(std::move(inner), std::move(options));
}

std::vector<std::string> report() {
  return Directory::shared()->report();
}

}  // namespace weft::fault
