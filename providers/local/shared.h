// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>

#include "providers/local/layout.h"
#include "src/base/bytes.h"
#include "src/base/fd.h"
#include "weft/result.h"

// An inbox as memory: made and kept by its owner, found and mapped by the peer, by the number of its
// descriptor in /proc. The kernel frees it with the last process that has it, however those end. The owner's
// mapping holds a lock on the file, which the kernel takes away with the mapping when the process ends: that
// is how the peer knows. Move-only; one owner.
namespace weft::local {

// The address of an inbox, for the peer.
struct Whereabouts {
  int32_t pid = 0;
  int32_t fd = -1;
  Nonce nonce{};
  Nonce process{};  // the owner's process
  Bytes gpuSocket;  // by which GPU memory is shared (gpu_shares.h); empty: none is
};

class SharedInbox {
 public:
  SharedInbox() = default;
  SharedInbox(SharedInbox&& other) noexcept;
  SharedInbox& operator=(SharedInbox&& other) noexcept;
  ~SharedInbox();

  // A new one of our own, empty.
  static Result<SharedInbox> create(const Nonce& nonce);
  // A peer's. The error says why it cannot be had, which mostly means that the peer is on another host or in
  // another container.
  static Result<SharedInbox> find(const Whereabouts& where);

  explicit operator bool() const { return inbox_ != nullptr; }
  Inbox* operator->() const { return inbox_; }
  Inbox& operator*() const { return *inbox_; }
  int fd() const { return fd_.get(); }
  // Of an inbox that was found: its owner's process lives, and has not let go of it.
  bool ownerLives() const;

 private:
  Status map(const Fd& by);
  Status mapLocked();

  Fd fd_;
  Inbox* inbox_ = nullptr;
};

// Of this process, and of no other one that ever was: 128 random bits.
Nonce processNonce();

}  // namespace weft::local
