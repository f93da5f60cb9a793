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

// GPU memory that the two ends of a lane share: what is ours is named to the peer, and what the peer named is
// mapped here, so that the receiver copies from the sender's memory to its own. CUDA's descriptors go by
// a socket of the lane's own, a datagram each, always before the first frame that names what they stand for.
// Owned by its lane, and by the copies that are under way when that goes; used by the Queue's thread.
namespace weft::local {

class GpuShares {
 public:
  static Result<std::shared_ptr<GpuShares>> open(std::shared_ptr<const mem::gpu::Driver> driver, int gpu);

  const mem::gpu::Driver& driver() const { return *driver_; }
  int gpu() const { return gpu_; }                   // which this process uses
  const Bytes& socketName() const { return name_; }  // for the peer

  // Copies of this process's GPU of that number.
  Result<mem::gpu::Driver::Copies*> copiesOf(int gpu);

  // Offers the peer a piece of memory for the proof. The nonces are those of the two inboxes.
  Status meet(const Bytes& peerSocket, const Nonce& ours, const Nonce& theirs);
  // That we can copy out of the peer's memory: the piece that it offered before it said that it is willing.
  Status prove();
  // Both have tried. `reached`: the peer can copy out of our memory.
  void proven(bool reached);

  // How a frame names our memory at an address.
  struct Name {
    uint64_t share = 0;   // 0: it cannot be shared
    uint64_t offset = 0;  // in it
    size_t left = 0;      // bytes from there to its end
  };
  // Tells the peer of it where that is new; nothing: its socket is full, later.
  std::optional<Name> nameOf(const KeyedMemory& memory, const void* address);
  // A share that the peer should drop, as no registration has its memory any more.
  std::optional<uint64_t> gone(KeyTable& table) const;
  void forgetOurs(uint64_t share);

  // The peer's memory as frames name it, reachable by `gpu` of this process.
  Result<const std::byte*> find(uint64_t share, uint64_t offset, size_t length, int gpu);
  void drop(uint64_t share);

  GpuShares(std::shared_ptr<const mem::gpu::Driver> driver, int gpu)
      : driver_(std::move(driver)), gpu_(gpu) {}

 private:
  // Of our memory: an allocation, or a segment of one that has several.
  struct Ours {
    uint64_t key;  // of the registration that it is used by
    uintptr_t begin;
    size_t length;
    uint64_t share;
  };
  struct Theirs {
    uint64_t share;
    size_t length;
    Fd descriptor;  // until it is mapped
    std::unique_ptr<mem::gpu::Driver::Mapped> mapped;
    std::vector<int> reachedBy;  // GPUs
  };
  struct Datagram;

  Result<bool> announce(uint64_t share, const void* address, size_t length) const;
  void takeAnnounced();
  Result<const Theirs*> mapped(uint64_t share, int gpu);

  const std::shared_ptr<const mem::gpu::Driver> driver_;
  const int gpu_;
  std::vector<std::unique_ptr<mem::gpu::Driver::Copies>> copies_;  // one a GPU that was asked for
  Fd socket_;
  Bytes name_;
  Nonce ours_{}, theirs_{};
  std::unique_ptr<mem::gpu::Driver::Mapped> trial_;
  bool reached_ = true;
  uint64_t lastShare_ = 0;
  std::vector<Ours> named_;
  std::vector<Theirs> known_;
};

}  // namespace weft::local
