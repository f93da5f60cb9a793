// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "providers/common/keyed_memory.h"
#include "providers/local/layout.h"
#include "src/base/bytes.h"
#include "src/base/fd.h"
#include "src/mem/gpu/copies.h"

// The GPU memory that the two ends of a lane share. Our memory is named to the peer, and memory that the peer
// named is mapped here; so the receiver copies from the sender's memory to its own. CUDA's descriptors travel
// over a socket of the lane, one in each datagram, always before the first frame that names the share. The
// lane owns it; copies that are under way keep it alive longer. Used by the Queue's thread.
namespace weft::local {

class GpuShares {
 public:
  // An error where this process uses no GPU, or where its GPU cannot share.
  static Result<std::shared_ptr<GpuShares>> open(std::shared_ptr<const mem::gpu::Driver> driver, int gpu);

  const mem::gpu::Driver& driver() const { return *driver_; }
  int gpu() const { return gpu_; }                   // the GPU that this process uses
  const Bytes& socketName() const { return name_; }  // the socket's name, for the peer

  // The copies of that GPU of this process.
  Result<mem::gpu::Driver::Copies*> copiesOf(int gpu);

  // Offers the peer a piece of memory for the proof. The nonces are those of the two inboxes.
  Status meet(const Bytes& peerSocket, const Nonce& ours, const Nonce& theirs);
  // Proves that we can copy out of the peer's memory: out of the piece that it offered before it said that it
  // is willing.
  Status prove();
  // Both ends have tried. `reached`: the peer can copy out of our memory.
  void proven(bool reached);

  // The name of our memory at an address, for a frame.
  struct Name {
    uint64_t share = 0;   // 0: the memory cannot be shared
    uint64_t offset = 0;  // in the share
    size_t left = 0;      // bytes from there to the end of the share
  };
  // Tells the peer of the share where it is new. Nothing: the peer's socket is full, try later.
  std::optional<Name> nameOf(const KeyedMemory& memory, const void* address);
  // A share that the peer should drop, as no registration has its memory any more. 0: an entry that was never
  // shared.
  std::optional<uint64_t> gone(KeyTable& table) const;
  void forgetOurs(uint64_t share);

  // The peer's memory as frames name it, reachable by `gpu` of this process. An error: the peer named memory
  // that it never shared, or bytes past its end.
  Result<const std::byte*> find(uint64_t share, uint64_t offset, size_t length, int gpu);
  void drop(uint64_t share);

  GpuShares(std::shared_ptr<const mem::gpu::Driver> driver, int gpu)
      : driver_(std::move(driver)), gpu_(gpu) {}

 private:
  // A share of ours: an allocation, or a segment of an allocation that has several.
  struct Ours {
    uint64_t key;  // of the registration by which it is used
    uintptr_t begin;
    size_t length;
    uint64_t share;
  };
  // A share of the peer's.
  struct Theirs {
    uint64_t share;
    size_t length;
    Fd descriptor;  // closed once it is mapped
    std::unique_ptr<mem::gpu::Driver::Mapped> mapped;
    std::vector<int> reachedBy;  // GPUs of this process
  };
  struct Datagram;

  Result<bool> announce(uint64_t share, const void* address, size_t length) const;
  void takeAnnounced();
  Result<const Theirs*> mapped(uint64_t share, int gpu);

  const std::shared_ptr<const mem::gpu::Driver> driver_;
  const int gpu_;
  std::vector<std::unique_ptr<mem::gpu::Driver::Copies>> copies_;  // by GPU, for GPUs that were asked for
  Fd socket_;                                                      // bound to name_, connected to the peer's
  Bytes name_;
  Nonce ours_{}, theirs_{};                          // of the two inboxes
  std::unique_ptr<mem::gpu::Driver::Mapped> trial_;  // until both ends have tried
  bool reached_ = true;                              // the peer can copy out of our memory
  uint64_t lastShare_ = 0;
  std::vector<Ours> named_;
  std::vector<Theirs> known_;
};

}  // namespace weft::local
