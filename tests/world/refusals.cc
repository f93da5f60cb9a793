// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/world/refusals.h"

#include <cerrno>
#include <cstddef>
#include <utility>

namespace weft::world {

namespace {

Refusal* refused = nullptr;

bool refuses() {
  if (!refused || !refused->due) return false;
  if (refused->before > 0) return refused->before--, false;
  refused->due = false;
  return true;
}

}  // namespace

Refusing::Refusing(Refusal* refusal) : before_(std::exchange(refused, refusal)) {}

Refusing::~Refusing() {
  refused = before_;
}

}  // namespace weft::world

extern "C" {
void* __real_malloc(size_t bytes);
void* __wrap_malloc(size_t bytes);

void* __wrap_malloc(size_t bytes) {
  if (!weft::world::refuses()) return __real_malloc(bytes);
  errno = ENOMEM;
  return nullptr;
}
}
