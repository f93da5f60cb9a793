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

// The memory that peers may reach through one Device: key -> range. A key is a place in the table and 43
// random bits, so nobody guesses one and a stale one fits nothing. Adding and removing lock; `use`, on the
// data path, pins a range with one atomic operation, and `remove` waits until nobody holds a pin. A pin is
// held during one system call or copy, never longer. Any thread.
namespace weft {

class KeyTable {
 public:
  class Use {
   public:
    Use() = default;
    Use(std::atomic<uint64_t>* pinned, std::byte* base, size_t length, int gpu)
        : state_(pinned), base_(base), length_(length), gpu_(gpu) {}
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    Use& operator=(Use&& other) noexcept;
    Use(Use&& other) noexcept;
    ~Use() { release(); }
    void release();
    bool valid() const { return state_ != nullptr; }
    int gpu() const { return gpu_; }  // the GPU that the memory is of; -1: the host
    // The bytes at `offset`; null when the region is gone or [offset, offset + length) leaves it.
    std::byte* at(uint64_t offset, size_t length) const {
      if (!state_ || offset > length_ || length > length_ - offset) return nullptr;
      return base_ + offset;
    }

   private:
    std::atomic<uint64_t>* state_ = nullptr;
    std::byte* base_ = nullptr;
    size_t length_ = 0;
    int gpu_ = -1;
  };

  uint64_t add(void* base, size_t length, int gpu = -1);  // 0: the table is full
  void remove(uint64_t key);
  Use use(uint64_t key);  // not valid when there is no such key (any more)

 private:
  static constexpr size_t kIndexBits = 20;
  static constexpr size_t kChunk = 1024;
  static constexpr size_t kChunks = (size_t{1} << kIndexBits) / kChunk;

  struct Slot {
    std::atomic<uint64_t> state{0};  // 32 bits of the key in the upper half, alive bit 31, pins below
    std::byte* base = nullptr;
    size_t length = 0;
    uint64_t key = 0;
    int gpu = -1;
  };

  Slot* find(uint64_t key) const;
  bool grow();

  std::array<std::atomic<Slot*>, kChunks> chunks_{};
  std::mutex mutex_;  // guards what follows
  std::vector<std::unique_ptr<Slot[]>> owned_;
  std::vector<uint32_t> free_;
};

}  // namespace weft
