// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "src/base/clock.h"
#include "src/core/lock_order.h"

// Connections that are being made, by the token their handle's scratch part carries. What NCCL has given up
// is called no more and closed by nobody: its deadline ends it, with the next tick of the control thread.
namespace weft::core {

class Context;

// One of them. Asked under the table's lock. Each is a Meeting.
class Pending {
 public:
  virtual ~Pending() = default;
  virtual void called(TimePoint now) = 0;  // by NCCL
  virtual bool expired(TimePoint now) const = 0;
  virtual bool madeIn(const Context* context) const = 0;
};

// Shared by the runtime, which empties it at its end, and its router. Any thread. What is dropped goes after
// the lock: it may close a comm.
class PendingTable {
 public:
  uint64_t keep(std::shared_ptr<Pending> meeting);
  std::shared_ptr<Pending> find(uint64_t token, TimePoint now);  // for a call of NCCL's
  void drop(uint64_t token);
  void dropExpired(TimePoint now);
  void dropOf(const Context* context);
  void dropAll();
  size_t size();

 private:
  void dropIf(const std::function<bool(const Pending&)>& unwanted);

  OrderedMutex mutex_{LockRank::pending};
  std::map<uint64_t, std::shared_ptr<Pending>> meetings_;
  uint64_t lastToken_ = 0;
};

}  // namespace weft::core
