// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/world/ground.h"

#include <algorithm>
#include <new>
#include <sys/mman.h>

namespace weft::world {

namespace {

constexpr size_t kField = size_t{256} << 20;  // reserved, and had where it is touched
constexpr size_t kApart = 64;

}  // namespace

Ground::~Ground() {
  for (const Field& field : fields_) (void)::munmap(field.at, field.bytes);
}

std::span<std::byte> Ground::take(size_t bytes) {
  const size_t whole = (bytes + kApart) & ~(kApart - 1);
  if (fields_.empty() || used_ + whole > fields_.back().bytes) {
    const size_t size = std::max(kField, whole);
    void* at =
        ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    fields_.push_back({static_cast<std::byte*>(at), size});
    used_ = 0;
  }
  std::byte* at = fields_.back().at + used_;
  used_ += whole;
  return {at, bytes};
}

}  // namespace weft::world
