// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "providers/fault/control.h"

// The knowledge that the fault Transports of a process share: how often the Queue behind an address polled
// (for works held until then), and everybody's counters. Thread-safe; control path only.
namespace weft::fault {

using PollCount = std::shared_ptr<std::atomic<uint64_t>>;

class Directory {
 public:
  static std::shared_ptr<Directory> shared();
  ~Directory();

  void publish(std::span<const std::byte> address, PollCount polls);
  void withdraw(std::span<const std::byte> address);
  PollCount find(std::span<const std::byte> address);  // null: not in this process

  void enter(const std::shared_ptr<FaultControl>& control);
  std::vector<std::string> report();  // of all controls still alive

 private:
  std::weak_ptr<Directory> self_;
  std::mutex mutex_;  // guards what follows
  std::map<std::string, PollCount> polls_;
  std::vector<std::weak_ptr<FaultControl>> controls_;
};

}  // namespace weft::fault
