// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>

#include "providers/verbs/library.h"
#include "weft/transport.h"

// A registration on one Device. Any thread makes and destroys it; the data path reads localKey().
namespace weft::verbs {

class VerbsMemory : public Memory {
 public:
  static Result<std::unique_ptr<Memory>> create(const Library& library, ibv_pd* pd, const MemoryDesc& desc);

  std::span<const std::byte> blob() const override { return blob_; }
  uint32_t localKey() const { return region_->lkey; }
  bool host() const { return host_; }  // this machine's processors may read it, so it can be inlined

  // `base`: the address by which works and peers name the first byte.
  VerbsMemory(Handle<ibv_mr> region, uint64_t base, bool host);

 private:
  const Handle<ibv_mr> region_;
  const bool host_;
  std::array<std::byte, 16> blob_{};  // base and rkey, 8 bytes each
};

// Reads blob() of the other end. The bytes come from outside.
Result<RemoteMemory> decodeMemory(std::span<const std::byte> blob);

}  // namespace weft::verbs
