// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "tools/replay/table.h"

// The network's table, for one queue. As a Table, one thread at a time.
namespace weft::replay {

class NetCalls : public Table {
 public:
  using Table::Table;

  Status init(const Op& op) override;
  void finalize() override { context_.reset(); }
  Result<Answer> listen() override;
  Result<Answer> connect(const Op& op, Times* times) override;
  Result<Answer> accept(const Op& op, Times* times) override;
  ncclResult_t close() override { return comm_.close(); }
  Status prepare(const Op& op, CommMemory* memory, Posted* posted) override;
  ncclResult_t post(const Posted& posted, void** request) override;
  ncclResult_t flush(const Posted& posted, void** request) override;
  ncclResult_t test(void* request, int* done, int* sizes) override;
  Result<bool> check(const Op& test, const Posted& posted, std::span<const int> sizes, Times* times) override;
  Compared& sumOf(const Posted& posted, Times* times) const override;
  Result<void*> add(std::span<std::byte> memory) override;
  void remove(void* mhandle) override;

  // The comm that a listener's queue has accepted.
  void adopt(netdriver::Comm comm) { comm_ = std::move(comm); }

 private:
  using Clock = std::chrono::steady_clock;

  Result<bool> checkMessage(const Posted& posted, size_t part, uint64_t told) const;
  void* contextRaw() const;

  netdriver::Comm comm_;
  std::unique_ptr<netdriver::Context> context_;
  netdriver::Handle handle_{};  // of the listener it connects to; known since `since_`
  bool hasHandle_ = false;
  Clock::time_point since_{};  // when the first call for this connection was made
};

}  // namespace weft::replay
