// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/pages.h"

#include <algorithm>
#include <cerrno>
#include <sys/mman.h>
#include <unistd.h>

#include "src/base/log.h"

namespace weft {

size_t pageBytes() {
  static const auto bytes = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

// Copy-on-write after a fork would give the parent new pages, while the card would go on with the old ones.
// So the child gets none of them (MADV_DONTFORK).
Result<std::shared_ptr<std::byte[]>> mapPages(size_t wanted) {
  const size_t bytes = (std::max<size_t>(wanted, 1) + pageBytes() - 1) / pageBytes() * pageBytes();
  void* start = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) {
    return Error(Code::resources, "allocating protocol memory",
                 format("%zu bytes; raise the limit on address space (ulimit -v)", bytes), errno);
  }
  (void)::madvise(start, bytes, MADV_DONTFORK);
  return std::shared_ptr<std::byte[]>(static_cast<std::byte*>(start),
                                      [bytes](std::byte* data) { ::munmap(data, bytes); });
}

}  // namespace weft
