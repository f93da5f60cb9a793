// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>

#include "providers/verbs/library.h"
#include "weft/transport.h"

// A registration of one Device. Made and destroyed by any thread; localKey() is for the data path.
namespace weft::verbs {

class VerbsMemory : public Memory {
 public:
  static Result<std::unique_ptr<Memory>> create(const Library& library, ibv_pd* pd, const MemoryDesc& desc);

  std::span<const std::byte> blob() const override { return blob_; }
  uint32_t localKey() const { return region_->lkey; }
  bool host() const { return host_; }  // this machine's processors may read it

  // `base`: what works and peers call its first byte.
  VerbsMemory(Handle<ibv_mr> region, uint64_t base, bool host);

 private:
  const Handle<ibv_mr> region_;
  const bool host_;
  std::array<std::byte, 16> blob_{};
};

// The other end's reading of blob().
Result<RemoteMemory> decodeMemory(std::span<const std::byte> blob);

}  // namespace weft::verbs
