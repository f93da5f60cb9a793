// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "tools/netdriver/comm.h"
#include "tools/netdriver/rma_table.h"

// Ranks that reach into each other's windows by a plugin's table of one-sided operations, made and given back
// in NCCL's order. Made and destroyed by one thread, driven by another in between. The table's library must
// outlive it.
namespace weft::netdriver {

class RmaComm {
 public:
  struct Listening {
    void* raw = nullptr;
    Handle handle{};
  };
  static Result<std::unique_ptr<RmaComm>> create(RmaTable& table, uint64_t commId);
  explicit RmaComm(RmaTable& table, void* context) : table_(table), context_(context) {}
  ~RmaComm();
  RmaComm(const RmaComm&) = delete;
  RmaComm& operator=(const RmaComm&) = delete;

  Result<Listening> listen(int device) const;
  // All ranks at the same time; blocks. `contexts`: of operations that need no order among each other.
  Status connect(const Listening& listening, std::span<Handle> handles, int rank, int contexts);
  // All ranks in the same order; blocks. The handle is valid as long as the comm.
  Result<void*> registerMemory(std::span<std::byte> memory, uint64_t flags = 0);

  RmaTable& table() const { return table_; }
  void* rmaContext() const { return rmaContext_; }
  void* collComm() const { return collComm_; }

 private:
  RmaTable& table_;
  void* context_;
  void* collComm_ = nullptr;
  void* rmaContext_ = nullptr;
  std::vector<void*> mhandles_;
};

}  // namespace weft::netdriver
