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

#include "weft/transport.h"

// The memory that peers may reach through a Device: key -> range. A key is a place in the table (20 bits) and
// 44 bits, of which the highest is 1 and the others are random. So nobody guesses a key, and a stale key fits
// nothing. add() and remove() lock. use(), on the data path, pins a range by one atomic operation, and
// remove() waits until no pin is left. A pin is held during one system call or copy, never longer. Any
// thread.
namespace weft {

class KeyTable {
 public:
  // A pin of a range. Not valid: there is no such key.
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
    int gpu() const { return gpu_; }  // the GPU that the memory belongs to; -1: the host
    // The bytes at `offset`. Null when the key was not valid, or when [offset, offset + length) leaves the
    // range.
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

  // 0: the table is full.
  uint64_t add(void* base, size_t length, int gpu = -1, PeerAccess peers = PeerAccess::readAndWrite);
  // The range must not be touched by peers any more. Waits for pins, so it must not run while the same thread
  // has a pin.
  void remove(uint64_t key);
  // Not valid when the key is not (or no longer) in the table, or when peers may not do that to its memory.
  Use use(uint64_t key, PeerAccess wanted = PeerAccess::none);

 private:
  static constexpr size_t kIndexBits = 20;
  static constexpr size_t kChunk = 1024;
  static constexpr size_t kChunks = (size_t{1} << kIndexBits) / kChunk;

  // A registration's place. The five plain members are written before `state` is alive, and read after it.
  struct Slot {
    // Upper half: 32 bits of the key. Bit 31: alive. Below: the number of pins.
    std::atomic<uint64_t> state{0};
    std::byte* base = nullptr;
    size_t length = 0;
    uint64_t key = 0;
    int gpu = -1;
    PeerAccess peers = PeerAccess::none;
  };

  // The place of the key's index; null: beyond the table.
  Slot* find(uint64_t key) const;
  bool grow();

  // Chunks are added and never freed, so find() needs no lock.
  std::array<std::atomic<Slot*>, kChunks> chunks_{};
  std::mutex mutex_;                            // guards the members below
  std::vector<std::unique_ptr<Slot[]>> owned_;  // the owner of chunks_
  std::vector<uint32_t> free_;                  // indices without a registration
};

}  // namespace weft
