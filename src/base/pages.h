// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <memory>

#include "weft/result.h"

// Memory that a card writes or reads is mapped by itself, with nothing else on its pages. Before Linux 5.12 a
// card and a forked child cannot both have such a page: libibverbs keeps registered pages from children, and
// on pages of the heap that would be everything else on them too. Any thread.
namespace weft {

size_t pageBytes();  // of this kernel: 4 KiB, 16 or 64

// Zeros in whole pages of their own, at least `bytes` of them, that no forked child gets. Code::resources
// where there are none.
Result<std::shared_ptr<std::byte[]>> mapPages(size_t bytes);

}  // namespace weft
