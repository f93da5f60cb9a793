// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "tools/netdriver/coll_net.h"
#include "tools/replay/table.h"

// The table for collective offload, for one context, listener or group. As a Table, one thread at a time.
namespace weft::replay {

class CollCalls : public Table {
 public:
  using Table::Table;
  ~CollCalls() override { (void)CollCalls::close(); }

  Status init(const Op& op) override;
  void finalize() override { context_.reset(); }
  Result<Answer> listen() override;
  // Blocks, as the plugin does.
  Result<Answer> connect(const Op& op, Times* times) override;
  Result<Answer> accept(const Op& op, Times* times) override;  // this table has none
  ncclResult_t close() override;
  Status prepare(const Op& op, CommMemory* memory, Posted* posted) override;
  ncclResult_t post(const Posted& posted, void** request) override;
  ncclResult_t flush(const Posted& posted, void** request) override;
  ncclResult_t test(void* request, int* done, int* sizes) override;
  Result<bool> check(const Op& test, const Posted& posted, std::span<const int> sizes, Times* times) override;
  Compared& sumOf(const Posted&, Times* times) const override { return times->collectives; }
  Result<void*> add(std::span<std::byte> memory) override;
  void remove(void* mhandle) override;

 private:
  Result<const netdriver::CollContext*> context();

  std::unique_ptr<netdriver::CollContext> context_;
  void* comm_ = nullptr;  // of a listener or of a group
};

}  // namespace weft::replay
