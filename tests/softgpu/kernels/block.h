// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <cstdint>

#include "tests/softgpu/kernels/layout.h"
#include "tests/softgpu/memory.h"

namespace softgpu {

// Reads a field of a structure in device memory.
template <typename T>
T& field(char* base, int offset) {
  return *reinterpret_cast<T*>(base + offset);
}

// Words that the other side, NCCL's proxy or another kernel, writes and reads at the same time.
template <typename T>
T readShared(const T* word) {
  return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}
template <typename T>
void writeShared(T* word, T value) {
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

// One block of one launch: the channel it works for. Used by the block's own thread and by those that it
// starts.
class Block {
 public:
  Block(const Layout& layout, int version, char* comm, int channel);

  const Layout& layout() const { return layout_; }
  int version() const { return version_; }
  char* comm() const { return comm_; }
  char* channel() const { return channel_; }
  int channelId() const { return channelId_; }
  int rank() const { return field<int>(comm_, layout_.rank); }
  int ranks() const { return field<int>(comm_, layout_.ranks); }
  int bufferSize(int protocol) const { return field<int>(comm_, layout_.bufferSizes + protocol * 4); }
  int p2pChunk() const { return field<int>(comm_, layout_.p2pChunk); }

  // The ncclConnInfo of a peer; index 0: rings and trees, 1: sends and receives.
  char* connection(int peer, bool receive, int index) const;
  const int* userRanks() const;
  int ringField(int offset) const { return field<int>(channel_, layout_.ring + offset); }

  // True once NCCL has told the kernel to end. It ends without moving data then.
  bool aborted();
  // Gives way to other threads; `turn` counts the calls of one wait.
  void pause(unsigned turn);

 private:
  const Layout& layout_;
  const int version_;
  char* const comm_;
  char* const channel_;
  const int channelId_;
  const uint32_t* const abortFlag_;
  std::atomic<bool> aborted_{false};
};

// Waits until `ready` or the abort. True: ready.
template <typename Ready>
bool waitUntil(Block& block, Ready&& ready) {
  for (unsigned turn = 0; !ready(); ++turn) {
    if (block.aborted()) return false;
    block.pause(turn);
  }
  return true;
}

}  // namespace softgpu
