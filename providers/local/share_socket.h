// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <optional>
#include <utility>

#include "providers/local/layout.h"
#include "src/base/bytes.h"
#include "src/base/fd.h"
#include "src/mem/gpu/abi.h"
#include "weft/result.h"

// The socket of a lane by which the names of GPU memory travel, one in each datagram: a descriptor can go no
// other way. Sent and taken without waiting. The lane's GpuShares owns it. Used by the Queue's thread.
namespace weft::local {

// What a process tells of an allocation that it shares.
struct Announcement {
  Nonce from;  // the sender's inbox
  uint64_t share;
  uint64_t length;             // of the allocation
  uint64_t way;                // kByDescriptor: one comes along; kByHandle
  mem::gpu::IpcHandle handle;  // of kByHandle
};

// The shares of the proof, one a way. They begin with the nonce of their owner's inbox.
constexpr uint64_t kTrialByDescriptor = ~uint64_t{0};
constexpr uint64_t kTrialByHandle = kTrialByDescriptor - 1;

class ShareSocket {
 public:
  static Result<ShareSocket> open();
  const Bytes& name() const { return name_; }  // for the peer
  // From now on everything is sent to the peer's socket.
  Status connect(const Bytes& peer);

  // `descriptor` goes along where there is one. False: the peer's socket is full.
  Result<bool> send(const Announcement& announcement, const Fd& descriptor) const;
  // The next announcement that came from `sender`. Any process of the network namespace may write to the
  // socket: what others wrote is dropped, and its descriptors are closed.
  std::optional<std::pair<Announcement, Fd>> take(const Nonce& sender) const;

 private:
  Fd socket_;
  Bytes name_;
};

}  // namespace weft::local
