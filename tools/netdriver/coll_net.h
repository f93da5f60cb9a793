// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <span>

#include "nccl/collnet.h"
#include "tools/netdriver/bootstrap.h"
#include "tools/netdriver/comm.h"

// A loaded plugin's table for collective offload, and a group made by it as NCCL's service thread makes one.
// The table's library must outlive every use. Used by one thread at a time.
namespace weft::netdriver {

using CollTable = ncclCollNet_v12_t;

class CollContext {
 public:
  static Result<std::unique_ptr<CollContext>> create(const CollTable& table, uint64_t commId);
  CollContext(const CollTable& table, void* raw) : table_(table), raw_(raw) {}
  ~CollContext() { table_.finalize(raw_); }
  CollContext(const CollContext&) = delete;
  CollContext& operator=(const CollContext&) = delete;
  const CollTable& table() const { return table_; }
  void* raw() const { return raw_; }

 private:
  const CollTable& table_;
  void* raw_;
};

class CollComm {
 public:
  struct Listening {
    void* raw = nullptr;
    Handle handle{};
  };
  static Result<Listening> listen(const CollContext& context, int device);
  // All ranks at the same time; blocks.
  static Result<std::unique_ptr<CollComm>> connect(const CollContext& context, const Listening& listening,
                                                   std::span<Handle> handles, int rank);
  CollComm(const CollTable& table, void* raw) : table_(table), raw_(raw) {}
  ~CollComm();
  CollComm(const CollComm&) = delete;
  CollComm& operator=(const CollComm&) = delete;

  const CollTable& table() const { return table_; }
  void* raw() const { return raw_; }
  Status registerBuffer(size_t bytes);  // one, zeroed
  std::byte* data() const { return buffer_.data(); }
  void* mhandle() const { return mhandle_; }

 private:
  const CollTable& table_;
  void* raw_;
  HostBuffer buffer_;
  void* mhandle_ = nullptr;
};

}  // namespace weft::netdriver
