// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/verbs/receives.h"

#include "providers/verbs/words.h"

// The chain of receives, made once and posted again and again.
namespace weft::verbs {

Receives::Receives() {
  for (size_t i = 0; i < chain_.size(); i++) {
    chain_[i].wr_id = kId;
    chain_[i].next = i + 1 < chain_.size() ? &chain_[i + 1] : nullptr;
  }
}

Status Receives::fill(ibv_srq* queue, uint32_t count) {
  queue_ = queue;
  missing_ = (count + kBatch - 1) / kBatch * kBatch;
  while (missing_ > 0)
    if (const int code = postBatch()) return verbsError("posting receives", "a shared receive queue", code);
  return {};
}

// Where the queue takes only a part of the chain, the rest stays missing.
int Receives::postBatch() {
  ibv_recv_wr* refused = nullptr;
  const int code = ibv_post_srq_recv(queue_, chain_.data(), &refused);
  missing_ -= code == 0 ? kBatch : static_cast<uint32_t>(refused ? refused - chain_.data() : 0);
  return code;
}

}  // namespace weft::verbs
