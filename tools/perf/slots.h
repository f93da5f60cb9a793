// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>

// How NCCL cuts the buffer of a connection, and its messages. Plain numbers; any thread.
namespace weft::perf {

// Slices of a message and shares of an instance begin at multiples of it.
constexpr size_t kAlignBytes = 16;
constexpr size_t kSteps = 8;  // NCCL_STEPS: slots of a connection's buffer

// The most bytes of a message where ranks send to each other, not around a ring: a quarter of the slot where
// less than a slot is sent, and half of it up to eight. The receive is posted with the whole slot all the
// same.
constexpr size_t chunkOf(size_t bytes, size_t slotBytes) {
  if (bytes < slotBytes) return slotBytes / 4;
  return bytes < kSteps * slotBytes ? slotBytes / 2 : slotBytes;
}

}  // namespace weft::perf
