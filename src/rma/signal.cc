// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/rma/signal.h"

#include <atomic>

#include "src/base/log.h"

// The addition of a signal to a word of host memory.
namespace weft::rma {

Status addToWord(const Window& window, uint64_t offset, uint64_t addend) {
  std::byte* at = window.at(offset);
  if (reinterpret_cast<uintptr_t>(at) % sizeof(uint64_t) != 0)
    return Error(Code::invalidArgument, "adding a signal",
                 format("%p, at %zu of window %u, is no address of a 64-bit word", static_cast<void*>(at),
                        static_cast<size_t>(offset), window.number));
  auto* word = reinterpret_cast<uint64_t*>(at);
  std::atomic_ref<uint64_t>(*word).fetch_add(addend, std::memory_order_release);
  return {};
}

}  // namespace weft::rma
