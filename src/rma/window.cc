// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/rma/window.h"

#include <cinttypes>

#include "src/base/log.h"

// A window's words for errors.
namespace weft::rma {

std::string Window::describe(uint32_t rank, uint64_t offset, uint64_t bytes) const {
  return format("%" PRIu64 " bytes from %" PRIu64 " on, in window %u, of which rank %u has %" PRIu64 " bytes",
                bytes, offset, number, rank, ranks[rank].length);
}

}  // namespace weft::rma
