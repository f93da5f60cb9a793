// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <vector>

#include "providers/ofi/compat.h"

// Our notes on each libfabric operation in flight. All are made with the Queue, so posting allocates
// nothing; the address of one is libfabric's context and comes back with its completion. One thread: the
// Queue's.
namespace weft::ofi {

class OfiEndpoint;
struct Stream;

enum class Purpose : uint8_t {
  work,        // a Work that wants its completion
  unsignaled,  // a Work that only wants to hear of failure
  hello,       // ours: proves that a connection stands, or that everything before it has landed
  receive,     // ours: what a notification consumes with providers that want it so
  none,        // it is free: whatever the provider still says of it is about a Work that has ended
};

struct Operation {
  fi_context2 fabric{};         // first: the provider's own where it asks for FI_CONTEXT or FI_CONTEXT2
  OfiEndpoint* lane = nullptr;  // null while it is free, and when its lane was destroyed before it finished
  Stream* stream = nullptr;     // of that lane
  uint64_t context = 0;
  Purpose purpose = Purpose::none;
};

class OperationPool {
 public:
  explicit OperationPool(size_t count) : operations_(count), free_(count) { reset(); }

  size_t available() const { return available_; }
  Operation* take() { return available_ > 0 ? free_[--available_] : nullptr; }  // null: all are in flight
  void give(Operation* operation) {
    operation->lane = nullptr;
    operation->purpose = Purpose::none;
    free_[available_++] = operation;
  }

  // All of them are free: none will complete any more.
  void reset() {
    available_ = 0;
    for (Operation& operation : operations_) give(&operation);
  }

  // Everything of one lane that is still in flight; not for the data path.
  template <class Visit>
  void forEachOf(const OfiEndpoint* lane, Visit visit) {
    for (Operation& operation : operations_)
      if (operation.lane == lane) visit(operation);
  }

 private:
  std::vector<Operation> operations_;
  std::vector<Operation*> free_;  // the first available_ are
  size_t available_ = 0;
};

}  // namespace weft::ofi
