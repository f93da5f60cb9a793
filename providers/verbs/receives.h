// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <cstdint>

#include "providers/verbs/library.h"
#include "weft/result.h"

// Receive work of a shared receive queue. A notification consumes one that carries no memory, so all are
// alike: one chain, made once, posted again whenever as many were consumed. One thread.
namespace weft::verbs {

class Receives {
 public:
  static constexpr uint32_t kBatch = 64;
  static constexpr uint64_t kId = ~uint64_t{0};  // wr_id of every receive

  Receives();
  Receives(const Receives&) = delete;
  Receives& operator=(const Receives&) = delete;

  // Posts `count` of them (rounded up to whole batches) to begin with.
  Status fill(ibv_srq* queue, uint32_t count);

  void consumed() { missing_++; }
  // Cheap unless a batch is due; what cannot be posted now is tried again next time.
  void refill() {
    if (missing_ >= kBatch) [[unlikely]]
      (void)postBatch();
  }

 private:
  int postBatch();

  std::array<ibv_recv_wr, kBatch> chain_{};
  ibv_srq* queue_ = nullptr;
  uint32_t missing_ = 0;
};

}  // namespace weft::verbs
