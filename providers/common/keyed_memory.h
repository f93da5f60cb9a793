// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <memory>

#include "providers/common/key_table.h"
#include "weft/transport.h"

// Memory of a Device whose lanes land by the processor. The kernel need not know of a registration: it is
// only a key under which peers may reach the range. Any thread makes and destroys it; immutable in between.
namespace weft {

class KeyedMemory : public Memory {
 public:
  // `magic` begins the description for peers. `hostOnly` says why a GPU's memory is refused; null: it is not.
  static Result<std::unique_ptr<Memory>> create(std::shared_ptr<KeyTable> table, const MemoryDesc& desc,
                                                uint32_t magic, const char* hostOnly);
  // The first half of create(), for derived classes: the key of the range.
  static Result<uint64_t> keyFor(KeyTable& table, const MemoryDesc& desc, const char* hostOnly);
  KeyedMemory(std::shared_ptr<KeyTable> table, uint64_t key, const MemoryDesc& desc, uint32_t magic);
  ~KeyedMemory() override { table_->remove(key_); }

  std::span<const std::byte> blob() const override { return blob_; }
  uint64_t key() const { return key_; }
  int gpu() const { return gpu_; }  // -1: host memory
  // The range lies inside the registration; written so that no sum overflows.
  bool covers(const void* address, size_t length) const {
    const auto first = reinterpret_cast<uintptr_t>(address);
    return first >= base_ && length <= length_ && first - base_ <= length_ - length;
  }

 private:
  const std::shared_ptr<KeyTable> table_;
  const uint64_t key_;
  const uintptr_t base_;
  const size_t length_;
  const int gpu_;
  std::array<std::byte, 12> blob_;
};

// Reads blob() of the other end. The bytes come from outside and may be anything.
Result<RemoteMemory> decodeKeyedMemory(std::span<const std::byte> blob, uint32_t magic);

// The fault of a work on keyed memory of at most `most` bytes: 0, or an errno; and the words for that errno.
int faultOf(const Work& work, size_t most);
const char* faultWords(int error);

}  // namespace weft
