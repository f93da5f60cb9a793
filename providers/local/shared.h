// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>

#include "providers/local/layout.h"
#include "src/base/bytes.h"
#include "src/base/fd.h"
#include "weft/result.h"

// An inbox as memory. Its owner makes and keeps it; the peer finds it by the number of its descriptor in
// /proc, and maps it. The kernel frees it with the last process that has it, however the processes end. The
// owner's mapping holds a lock on the file, and the kernel takes the lock away with the mapping when the
// process ends: the lock tells the peer that the owner lives. Move-only; one owner.
namespace weft::local {

// The address of an inbox, for the peer.
struct Whereabouts {
  int32_t pid = 0;
  int32_t fd = -1;
  Nonce nonce{};
  Nonce process{};  // of the owner's process
  Bytes gpuSocket;  // the socket by which GPU memory is shared (gpu_shares.h); empty: none is shared
};

class SharedInbox {
 public:
  SharedInbox() = default;
  SharedInbox(SharedInbox&& other) noexcept;
  SharedInbox& operator=(SharedInbox&& other) noexcept;
  ~SharedInbox();

  // Makes a new inbox of our own, empty.
  static Result<SharedInbox> create(const Nonce& nonce);
  // Finds a peer's inbox. The error says why it cannot be had; mostly the peer is on another host or in
  // another container.
  static Result<SharedInbox> find(const Whereabouts& where);

  explicit operator bool() const { return inbox_ != nullptr; }
  Inbox* operator->() const { return inbox_; }
  Inbox& operator*() const { return *inbox_; }
  int fd() const { return fd_.get(); }
  // Of an inbox that was found: its owner's process lives and has not let go of it.
  bool ownerLives() const;

 private:
  Status map(const Fd& by);
  Status mapLocked();

  Fd fd_;
  Inbox* inbox_ = nullptr;
};

// 128 random bits of this process; no other process has or had the same.
Nonce processNonce();

}  // namespace weft::local
