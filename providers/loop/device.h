// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <memory>
#include <utility>

#include "providers/common/key_table.h"
#include "providers/loop/fabric.h"
#include "providers/loop/options.h"
#include "weft/transport.h"

// One rail of the in-process fabric, and the memory registered with it. Memory is reachable only over
// Endpoints of the same Device object, as with a NIC's protection domain. Thread-safe.
namespace weft::loop {

// Memory of a dma-buf, mapped where only this fabric's copies look, as a card maps it. Its owner may not be
// able to touch it.
class Mapped {
 public:
  static Result<Mapped> of(const MemoryDesc& desc);
  Mapped() = default;
  Mapped(Mapped&& other) noexcept : begin_(std::exchange(other.begin_, nullptr)), bytes_(other.bytes_) {}
  Mapped& operator=(Mapped&& other) noexcept;
  ~Mapped();
  void* data() const { return begin_; }

 private:
  void* begin_ = nullptr;
  size_t bytes_ = 0;
};

class LoopMemory : public Memory {
 public:
  LoopMemory(std::shared_ptr<KeyTable> regions, uint64_t key, const MemoryDesc& desc, Mapped mapped);
  ~LoopMemory() override;
  std::span<const std::byte> blob() const override { return blob_; }
  uint64_t key() const { return key_; }
  // Where an address of the owner's lies in the region; past its end for one that lies before it. The owner
  // may see the memory elsewhere than the fabric does.
  uint64_t offsetOf(const void* address) const { return reinterpret_cast<uintptr_t>(address) - owners_; }

 private:
  const std::shared_ptr<KeyTable> regions_;
  const uint64_t key_;
  const uintptr_t owners_;  // the owner's address of the first byte
  const Mapped mapped_;
  std::array<std::byte, 28> blob_;
};

// Reads a LoopMemory's blob.
Result<RemoteMemory> readBlob(std::span<const std::byte> blob);

class LoopDevice : public Device {
 public:
  LoopDevice(DeviceInfo info, LoopOptions options, int rail);

  const DeviceInfo& info() const override { return info_; }
  Result<std::unique_ptr<Memory>> registerMemory(const MemoryDesc& desc) override;
  Result<std::unique_ptr<Queue>> openQueue(const QueueDepths& wanted) override;

  const LoopOptions& options() const { return options_; }
  int rail() const { return rail_; }
  Fabric& fabric() const { return *fabric_; }
  const std::shared_ptr<KeyTable>& regions() const { return regions_; }
  const std::shared_ptr<Card>& card() const { return card_; }  // null: works take no time
  RailStats& stats() const { return options_.stats->rails[static_cast<size_t>(rail_)]; }

 private:
  const std::shared_ptr<Fabric> fabric_;
  const DeviceInfo info_;
  const LoopOptions options_;
  const int rail_;
  const std::shared_ptr<Card> card_;
  const std::shared_ptr<KeyTable> regions_;
};

}  // namespace weft::loop
