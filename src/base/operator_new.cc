// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <new>

#include "src/base/reserve.h"

// The operators `new` and `delete` of every program and library that links this file. It is a file of its
// own, so that a program with operators of its own does not get it.
void* operator new(std::size_t bytes) {
  if (void* memory = weft::allocateOrReserve(bytes)) return memory;
  throw std::bad_alloc();
}

// The same as in the C++ library; a sanitizer's own version would be paired with our delete.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return weft::allocateOrReserve(bytes);
}

void operator delete(void* memory) noexcept {
  weft::giveBack(memory);
}

void operator delete(void* memory, std::size_t) noexcept {
  weft::giveBack(memory);
}
