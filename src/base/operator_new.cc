// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <new>

#include "src/base/reserve.h"

// The operators `new` and `delete` of every program and library that this is linked into. A file of its own:
// a program with operators of its own does not get it.
void* operator new(std::size_t bytes) {
  if (void* memory = weft::allocateOrReserve(bytes)) return memory;
  throw std::bad_alloc();
}

// As the C++ library has it, but a sanitizer's own would be matched with our delete.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return weft::allocateOrReserve(bytes);
}

void operator delete(void* memory) noexcept {
  weft::giveBack(memory);
}

void operator delete(void* memory, std::size_t) noexcept {
  weft::giveBack(memory);
}
