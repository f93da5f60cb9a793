// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/fault/directory.h"

namespace weft::fault {

namespace {

// Trivially destructible: nothing runs at exit.
constinit std::mutex currentMutex;
constinit std::weak_ptr<Directory>* current = nullptr;

std::string keyOf(std::span<const std::byte> address) {
  return std::string(reinterpret_cast<const char*>(address.data()), address.size());
}

}  // namespace

std::shared_ptr<Directory> Directory::shared() {
  const std::lock_guard lock(currentMutex);
  if (current) {
    if (auto directory = current->lock()) return directory;
  }
  auto directory = std::make_shared<Directory>();
  directory->self_ = directory;
  current = &directory->self_;
  return directory;
}

Directory::~Directory() {
  const std::lock_guard lock(currentMutex);
  if (current == &self_) current = nullptr;
}

void Directory::publish(std::span<const std::byte> address, PollCount polls) {
  const std::lock_guard lock(mutex_);
  polls_[keyOf(address)] = std::move(polls);
}

void Directory::withdraw(std::span<const std::byte> address) {
  const std::lock_guard lock(mutex_);
  polls_.erase(keyOf(address));
}

PollCount Directory::find(std::span<const std::byte> address) {
  const std::lock_guard lock(mutex_);
  const auto at = polls_.find(keyOf(address));
  return at == polls_.end() ? nullptr : at->second;
}

void Directory::enter(const std::shared_ptr<FaultControl>& control) {
  const std::lock_guard lock(mutex_);
  std::erase_if(controls_, [](const auto& known) { return known.expired(); });
  controls_.push_back(control);
}

std::vector<std::string> Directory::report() {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> lines;
  for (const auto& known : controls_) {
    const auto control = known.lock();
    if (!control) continue;
    for (std::string& line : control->report()) lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace weft::fault
