// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "tools/netdriver/rma_table.h"
#include "tools/replay/table.h"

// The table of one-sided operations, for one context, listener or group of ranks. Windows are memory of their
// own, which other ranks write to. As a Table, one thread at a time.
namespace weft::replay {

class RmaCalls : public Table {
 public:
  using Table::Table;
  ~RmaCalls() override { (void)RmaCalls::close(); }

  Status init(const Op& op) override;
  void finalize() override;
  Result<Answer> listen() override;
  // Blocks, as the plugin does.
  Result<Answer> connect(const Op& op, Times* times) override;
  Result<Answer> accept(const Op& op, Times* times) override;  // this table has none
  ncclResult_t close() override;
  Status prepare(const Op& op, CommMemory* memory, Posted* posted) override;
  ncclResult_t post(const Posted& posted, void** request) override;
  ncclResult_t flush(const Posted& posted, void** request) override;
  ncclResult_t test(void* request, int* done, int* sizes) override;
  Result<bool> check(const Op&, const Posted&, std::span<const int>, Times*) override { return true; }
  Compared& sumOf(const Posted&, Times* times) const override { return times->oneSided; }
  Result<void*> add(std::span<std::byte> memory) override;  // windows are not registered by this
  void remove(void* mhandle) override;

  // The calls that only this table has: windows and contexts. All that other ranks put here is awaited, and
  // compared, before its window is given up.
  Result<Step> service(const Op& op, Times* times);

 private:
  struct Window {
    netdriver::HostBuffer buffer;
    size_t shift = 0;  // of the first byte in its page, as it was recorded
    size_t bytes = 0;
    void* mhandle = nullptr;
    std::span<std::byte> span() const { return buffer.span().subspan(shift, bytes); }
  };

  netdriver::RmaTable& table() const;
  Result<Step> registerWindow(const Op& op);
  Result<Step> arrived(uint64_t memory) const;  // all that other ranks put there
  void count(uint64_t memory, Times* times) const;
  Result<Step> allArrived(Times* times);
  std::optional<uint64_t> valueOf(std::pair<uint64_t, uint64_t> where) const;
  bool signalled(const Landing& landing) const;
  std::optional<std::string> wrong(uint64_t memory, const Landing& landing) const;
  void release(uint64_t memory);
  void progress() const;

  void* context_ = nullptr;
  void* comm_ = nullptr;  // of a listener or of a group
  void* rmaContext_ = nullptr;
  std::map<uint64_t, Window> windows_;
};

}  // namespace weft::replay
