// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <vector>

#include "providers/ofi/compat.h"

// Our notes on each libfabric operation in flight. All are made with the Queue, so posting allocates nothing.
// The address of a note is libfabric's context, and comes back with the completion. The Queue owns the pool;
// its thread uses it.
namespace weft::ofi {

class OfiEndpoint;
struct Stream;

enum class Purpose : uint8_t {
  work,        // a Work that wants its completion
  unsignaled,  // a Work that only wants to hear of failure
  hello,       // ours: proves that a connection is there, or that everything before it has landed
  receive,     // ours: consumed by a notification, with providers that want it so
  none,        // it is free: a later word of the provider's is about a Work that has ended
};

struct Operation {
  fi_context2 fabric{};         // first: the provider's own space, for FI_CONTEXT or FI_CONTEXT2
  OfiEndpoint* lane = nullptr;  // null: it is free, or its lane was destroyed before it finished
  Stream* stream = nullptr;     // of that lane
  uint64_t context = 0;         // the Work's
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

  // Makes all operations free: none of them will complete any more.
  void reset() {
    available_ = 0;
    for (Operation& operation : operations_) give(&operation);
  }

  // Visits the operations of a lane that are in flight. Not for the data path.
  template <class Visit>
  void forEachOf(const OfiEndpoint* lane, Visit visit) {
    for (Operation& operation : operations_)
      if (operation.lane == lane) visit(operation);
  }

 private:
  std::vector<Operation> operations_;
  std::vector<Operation*> free_;  // the first available_ entries are free
  size_t available_ = 0;
};

}  // namespace weft::ofi
