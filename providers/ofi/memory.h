// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <cstddef>

#include "providers/ofi/registry.h"
#include "weft/transport.h"

// A registration on one Device. Any thread makes and destroys it. The data path reads descriptor(), which
// never changes.
namespace weft::ofi {

class OfiMemory : public Memory {
 public:
  static Result<std::unique_ptr<Memory>> create(Registry& registry, const DeviceInfo& device,
                                                const MemoryDesc& desc);
  ~OfiMemory() override { registry_.remove(entry_.id); }

  std::span<const std::byte> blob() const override { return blob_; }
  void* descriptor() const { return entry_.descriptor; }
  RemoteMemory remote() const { return {entry_.base, entry_.key}; }

  OfiMemory(Registry& registry, const Registry::Entry& entry);

 private:
  Registry& registry_;
  const Registry::Entry entry_;
  std::array<std::byte, 16> blob_;
};

// Reads blob() of the other end. The bytes come from outside.
Result<RemoteMemory> decodeMemory(std::span<const std::byte> blob);

}  // namespace weft::ofi
