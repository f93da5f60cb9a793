// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

// The registered memory of the in-process fabric: key -> range. add and remove are the control path and
// lock; use is the data path and does not: it pins a range with one atomic operation, and remove waits until
// nobody holds a pin, so a copy never touches memory that was given back. Any thread.
namespace weft::loop {

class RegionTable {
 public:
  // Pins one region while it lives.
  class Use {
   public:
    Use() = default;
    Use(std::atomic<uint64_t>* pinned, std::byte* base, size_t length, uintptr_t owners)
        : state_(pinned), base_(base), length_(length), owners_(owners) {}
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    Use(Use&& other) noexcept;
    ~Use();
    bool valid() const { return state_ != nullptr; }
    // The bytes at `offset`; nullptr when the region is gone or [offset, offset + length) leaves it.
    std::byte* at(uint64_t offset, size_t length) const;
    // Likewise for an address of the owner's, which may see the memory elsewhere, or not at all.
    std::byte* at(const void* address, size_t length) const;

   private:
    std::atomic<uint64_t>* state_ = nullptr;
    std::byte* base_ = nullptr;
    size_t length_ = 0;
    uintptr_t owners_ = 0;
  };

  // `owners`: what the owner calls the first byte, which is copied at `base`. 0: the table is full.
  uint64_t add(void* base, size_t length, uint64_t domain, const void* owners);
  uint64_t add(void* base, size_t length, uint64_t domain) { return add(base, length, domain, base); }
  void remove(uint64_t key);

  // Not valid when the key is unknown, removed or belongs to another domain (another Device).
  Use use(uint64_t key, uint64_t domain);

 private:
  static constexpr size_t kChunk = 1024;
  static constexpr size_t kChunks = 1024;

  struct Slot {
    std::atomic<uint64_t> state{0};  // generation in the upper half, alive bit 31, pins below
    std::byte* base = nullptr;
    size_t length = 0;
    uint64_t domain = 0;
    uintptr_t owners = 0;
  };

  Slot* find(uint64_t key) const;
  bool grow();

  std::array<std::atomic<Slot*>, kChunks> chunks_{};
  std::mutex mutex_;  // guards what follows
  std::vector<std::unique_ptr<Slot[]>> owned_;
  std::vector<uint32_t> free_;
};

}  // namespace weft::loop
