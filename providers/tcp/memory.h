// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>

#include "providers/tcp/regions.h"
#include "weft/transport.h"

// A registration with one Device: nothing the kernel has to know, only a key under which peers may reach the
// range. Made and destroyed by any thread; immutable between.
namespace weft::tcp {

class TcpMemory : public Memory {
 public:
  static Result<std::unique_ptr<Memory>> create(std::shared_ptr<RegionTable> regions, const MemoryDesc& desc);
  TcpMemory(std::shared_ptr<RegionTable> regions, uint64_t key, const MemoryDesc& desc);
  ~TcpMemory() override { regions_->remove(key_); }

  std::span<const std::byte> blob() const override { return blob_; }
  bool covers(const void* address, size_t length) const {
    const auto first = reinterpret_cast<uintptr_t>(address);
    return first >= base_ && length <= length_ && first - base_ <= length_ - length;
  }

 private:
  const std::shared_ptr<RegionTable> regions_;
  const uint64_t key_;
  const uintptr_t base_;
  const size_t length_;
  std::array<std::byte, 12> blob_;
};

// The other end's reading of blob().
Result<RemoteMemory> decodeMemory(std::span<const std::byte> blob);

}  // namespace weft::tcp
