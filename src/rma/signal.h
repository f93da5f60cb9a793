// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "src/rma/window.h"

// Adding to a 64-bit word of a window. Several teams, and the application's own threads, may add to the same
// word at a time. Any thread.
namespace weft::rma {

// Whoever sees the word's new value sees all bytes that were written before the call.
Status addToWord(const Window& window, uint64_t offset, uint64_t addend);

}  // namespace weft::rma
