// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/world/counting_new.h"

#include <cstdlib>
#include <new>

#include "src/base/reserve.h"

namespace {

int64_t living = 0;

}  // namespace

void* operator new(size_t bytes) {
  void* made = weft::allocateOrReserve(bytes);
  if (!made) throw std::bad_alloc();
  living++;
  return made;
}

void* operator new(size_t bytes, std::align_val_t alignment) {
  void* made = nullptr;
  if (::posix_memalign(&made, static_cast<size_t>(alignment), bytes ? bytes : 1) != 0) throw std::bad_alloc();
  living++;
  return made;
}

void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  void* made = weft::allocateOrReserve(bytes);
  if (made) living++;
  return made;
}

void operator delete(void* object) noexcept {
  if (object) living--;
  weft::giveBack(object);
}

void operator delete(void* object, size_t) noexcept {
  operator delete(object);
}

void operator delete(void* object, std::align_val_t) noexcept {
  operator delete(object);
}

void operator delete(void* object, size_t, std::align_val_t) noexcept {
  operator delete(object);
}

namespace weft::world {

int64_t livingObjects() {
  return living;
}

}  // namespace weft::world
