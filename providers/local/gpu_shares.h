// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "providers/common/keyed_memory.h"
#include "providers/local/share_socket.h"
#include "src/base/bytes.h"
#include "src/base/fd.h"
#include "src/mem/gpu/copies.h"
#include "src/mem/gpu/errands.h"

// The GPU memory that the two ends of a lane share. Our memory is named to the peer, and memory that the peer
// named is mapped here; so the receiver copies from the sender's memory to its own. CUDA's descriptors and
// handles travel over a socket of the lane, one in each datagram, always before the first frame that names
// the share. The lane owns it; copies that are under way keep it alive longer. Used by the Queue's thread.
namespace weft::local {

class GpuShares {
 public:
  // An error where this process uses no GPU, or where its GPU cannot share.
  static Result<std::shared_ptr<GpuShares>> open(std::shared_ptr<const mem::gpu::Driver> driver, int gpu,
                                                 std::shared_ptr<mem::gpu::Errands> errands);
  ~GpuShares();  // what is mapped goes by errands
  GpuShares(const GpuShares&) = delete;
  GpuShares& operator=(const GpuShares&) = delete;

  const mem::gpu::Driver& driver() const { return *driver_; }
  int gpu() const { return gpu_; }  // the GPU that this process uses
  const Bytes& socketName() const { return socket_.name(); }

  // The copies of that GPU of this process.
  Result<mem::gpu::Driver::Copies*> copiesOf(int gpu);

  // Offers the peer a piece of memory for the proof. The nonces are those of the two inboxes.
  Status meet(const Bytes& peerSocket, const Nonce& ours, const Nonce& theirs);
  // Tries to copy out of the peer's memory: out of the pieces that it offered before it said that it is
  // willing.
  struct Proof {
    uint32_t ways = 0;                     // that work, as bits (layout.h)
    std::string noDescriptors, noHandles;  // why the other ways do not
  };
  Proof prove();
  // Both ends have tried. `reached`: the ways by which the peer can copy out of our memory.
  void proven(uint32_t reached);

  // A frame about a share that is to be put: forget, offer or answer.
  struct Note {
    FrameKind kind;
    uint64_t share;
    bool mapped = false;  // of an answer
  };
  // The next one. Shares that the peer should drop, as no registration has their memory any more, come first:
  // CUDA does not open memory at addresses at which its owner has freed other memory that is still open.
  std::optional<Note> nextNote(KeyTable& table);
  void noted(const Note& note);                // it was put
  void answered(uint64_t share, bool mapped);  // the peer says so of a share of ours
  void offered(uint64_t share);                // the peer offers one: it is mapped by an errand
  // Looks at the shares that are being mapped; those that are have an answer to put. True: some are not yet.
  bool settle();

  // The name of our memory at an address, for a frame.
  struct Name {
    uint64_t share = 0;   // 0: the peer cannot reach the memory, or has not answered yet
    uint64_t offset = 0;  // in the share
    size_t left = 0;      // bytes from there to the end of the share
  };
  // Whether it was named; then nameOf() knows the name.
  bool isNamed(const KeyedMemory& memory, const void* address) const {
    return reached_ == 0 || findNamed(memory, address) != nullptr;
  }
  // Offers the memory to the peer. All notes must have been put. False: the peer's socket is full, try later.
  bool name(const KeyedMemory& memory, const void* address);
  Name nameOf(const KeyedMemory& memory, const void* address) const;

  // The peer's memory as frames name it, reachable by `gpu` of this process. An error: the peer named memory
  // that it never offered or that could not be mapped, or bytes past its end.
  Result<const std::byte*> find(uint64_t share, uint64_t offset, size_t length, int gpu);
  void drop(uint64_t share);

  GpuShares(std::shared_ptr<const mem::gpu::Driver> driver, int gpu,
            std::shared_ptr<mem::gpu::Errands> errands)
      : driver_(std::move(driver)), gpu_(gpu), errands_(std::move(errands)) {}

 private:
  // A share of ours: an allocation, or a segment of an allocation that has several.
  struct Ours {
    uint64_t key;  // of the registration by which it is used
    uintptr_t begin;
    size_t length;
    uint64_t share;  // 0: it goes another way
    bool mapped = false;
  };
  using MappedPtr = std::unique_ptr<mem::gpu::Driver::Mapped>;
  // The memory that a share names, as it was announced.
  struct Named {
    size_t length;
    uint32_t way;
    Fd descriptor;  // closed once it is mapped
    mem::gpu::IpcHandle handle;
  };
  // A share that an errand maps. The errand alone writes `mapped`, and says with `over` that it did.
  struct Opening {
    Named named;
    std::optional<Result<MappedPtr>> mapped;
    std::atomic<bool> over{false};
  };
  // A share of the peer's, and the addresses by which GPUs of this process reach it.
  struct Theirs {
    struct View {
      int gpu;
      const std::byte* data;
      std::unique_ptr<mem::gpu::Driver::Mapped> mapped;  // null: the first view's serves this GPU as well
    };
    uint64_t share;
    Named named;
    std::shared_ptr<Opening> opening;  // null: none was begun, or it is over
    std::vector<View> views;
  };

  const Ours* findNamed(const KeyedMemory& memory, const void* address) const;
  void offerPiece();
  Status copyOut(uint64_t share);
  Result<bool> announceDescriptor(uint64_t share, const void* address, size_t length) const;
  Result<bool> announceHandle(uint64_t share, int gpu, const void* address, size_t length) const;
  Result<bool> announceAny(const Ours& fresh, int gpu) const;
  void takeAnnounced();
  void keep(const Announcement& announcement, Fd descriptor);
  Theirs* known(uint64_t share);
  Result<const std::byte*> open(uint64_t share, int gpu);
  static Result<MappedPtr> map(const mem::gpu::Driver& driver, Named& named, int gpu);
  Result<const Theirs::View*> viewOf(Theirs& theirs, int gpu) const;
  void answer(uint64_t share, bool mapped);
  bool finish(Theirs& theirs);

  const std::shared_ptr<const mem::gpu::Driver> driver_;
  const int gpu_;
  const std::shared_ptr<mem::gpu::Errands> errands_;
  std::vector<std::unique_ptr<mem::gpu::Driver::Copies>> copies_;  // by GPU, for GPUs that were asked for
  ShareSocket socket_;                                             // connected to the peer's
  Nonce ours_{}, theirs_{};                                        // of the two inboxes
  // The pieces of the trial, until both ends have tried.
  std::unique_ptr<mem::gpu::Driver::Mapped> trial_;
  std::unique_ptr<mem::gpu::Driver::Piece> trialPiece_;  // null: no handle is offered
  uint32_t reached_ = kByDescriptor | kByHandle;         // the ways by which the peer reaches our memory
  uint64_t lastShare_ = 0;
  std::vector<Ours> named_;
  std::vector<Theirs> known_;
  std::deque<Note> notes_;  // offers and answers to be put
};

}  // namespace weft::local
