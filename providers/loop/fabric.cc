// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/loop/fabric.h"

namespace weft::loop {

namespace {

// Trivially destructible, so that nothing runs at exit while other threads still use the fabric.
constinit std::mutex currentMutex;
constinit std::weak_ptr<Fabric>* current = nullptr;

}  // namespace

std::shared_ptr<Fabric> Fabric::shared() {
  const std::lock_guard lock(currentMutex);
  if (current) {
    if (auto fabric = current->lock()) return fabric;
  }
  auto fabric = std::make_shared<Fabric>();
  fabric->self_ = fabric;
  current = &fabric->self_;
  return fabric;
}

Fabric::~Fabric() {
  const std::lock_guard lock(currentMutex);
  if (current == &self_) current = nullptr;
}

void Fabric::publish(const std::shared_ptr<Port>& port) {
  const std::lock_guard lock(mutex_);
  ports_[port->id] = port;
}

void Fabric::withdraw(uint64_t id) {
  const std::lock_guard lock(mutex_);
  ports_.erase(id);
}

std::shared_ptr<Port> Fabric::find(uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto at = ports_.find(id);
  return at == ports_.end() ? nullptr : at->second;
}

}  // namespace weft::loop
