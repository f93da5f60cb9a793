// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <cstdint>

#include "providers/verbs/library.h"
#include "weft/result.h"

// The receives of a shared receive queue. A notification consumes a receive without memory, so all receives
// are alike: a chain that is made once, and posted again whenever as many were consumed. A single thread.
namespace weft::verbs {

class Receives {
 public:
  static constexpr uint32_t kBatch = 64;
  static constexpr uint64_t kId = ~uint64_t{0};  // the wr_id of every receive

  Receives();
  Receives(const Receives&) = delete;
  Receives& operator=(const Receives&) = delete;

  // Posts the first `count` receives, rounded up to whole batches.
  Status fill(ibv_srq* queue, uint32_t count);

  void consumed() { missing_++; }
  // Cheap unless a batch is due. A batch that cannot be posted now is tried again at the next call.
  void refill() {
    if (missing_ >= kBatch) [[unlikely]]
      (void)postBatch();
  }

 private:
  int postBatch();

  std::array<ibv_recv_wr, kBatch> chain_{};
  ibv_srq* queue_ = nullptr;
  uint32_t missing_ = 0;  // receives that are consumed and not posted again
};

}  // namespace weft::verbs
