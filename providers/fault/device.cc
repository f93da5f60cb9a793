// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/fault/device.h"

#include <algorithm>
#include <cerrno>

#include "providers/fault/queue.h"
#include "src/base/log.h"

namespace weft::fault {

bool fits(const FaultRule& rule, const Where& where) {
  if (rule.rail >= 0 && where.rail >= 0 && rule.rail != where.rail) return false;
  if (!rule.device.empty() && !where.device.empty() && rule.device != where.device) return false;
  return rule.lane < 0 || where.lane < 0 || rule.lane == where.lane;
}

bool Shared::hit(FaultKind kind, const Where& where) const {
  for (const auto& state : control->rules()) {
    if (state->rule.kind != kind || !fits(state->rule, where) || !state->next()) continue;
    state->record(0, 0);
    return true;
  }
  return false;
}

Status Shared::call(FaultKind kind, const Where& where, const char* operation) const {
  if (!hit(kind, where)) return {};
  const char* device = where.device.empty() ? "the provider" : where.device.c_str();
  return Error(Code::system, operation, format("%s: failed by the fault injector", device), EIO);
}

FaultDevice::FaultDevice(std::shared_ptr<Device> inner, std::shared_ptr<Shared> shared, Where where)
    : inner_(std::move(inner)), shared_(std::move(shared)), where_(std::move(where)), info_(inner_->info()) {
  if (shared_->delivery) info_.delivery = std::min(info_.delivery, *shared_->delivery);
}

FaultDevice::~FaultDevice() {
  for (const std::string& line : shared_->control->report()) WEFT_LOG(info, "%s", line.c_str());
}

Result<std::unique_ptr<Memory>> FaultDevice::registerMemory(const MemoryDesc& desc) {
  TRY(shared_->call(FaultKind::registerMemory, where_, "registering memory"));
  return inner_->registerMemory(desc);
}

Result<std::unique_ptr<Queue>> FaultDevice::openQueue(const QueueDepths& wanted) {
  TRY(shared_->call(FaultKind::openQueue, where_, "opening a queue"));
  TRY(auto inner, inner_->openQueue(wanted));
  return std::unique_ptr<Queue>(std::make_unique<FaultQueue>(*this, std::move(inner)));
}

}  // namespace weft::fault
