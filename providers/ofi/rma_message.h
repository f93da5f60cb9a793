// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "providers/ofi/operation.h"

// The argument of fi_writemsg and fi_readmsg for one contiguous piece. It points into itself, so it cannot be
// copied, and it serves a single call.
namespace weft::ofi {

class RmaMessage {
 public:
  RmaMessage(iovec local, fi_rma_iov remote, void* descriptor)
      : local_(local), remote_(remote), descriptor_(descriptor) {}
  RmaMessage(const RmaMessage&) = delete;
  RmaMessage& operator=(const RmaMessage&) = delete;

  const fi_msg_rma* to(fi_addr_t peer, Operation* operation, uint64_t data = 0) {
    message_.msg_iov = &local_;
    message_.desc = &descriptor_;
    message_.iov_count = 1;
    message_.addr = peer;
    message_.rma_iov = &remote_;
    message_.rma_iov_count = 1;
    message_.context = operation;
    message_.data = data;
    return &message_;
  }

 private:
  iovec local_;
  fi_rma_iov remote_;
  void* descriptor_;
  fi_msg_rma message_;
};

}  // namespace weft::ofi
