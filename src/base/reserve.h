// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>

// Memory that runs out makes a call fail, and the caller hears of it. Where nobody could be told - the
// control thread, closing, everything that unwinds - `new` takes from a reserve of the process instead of
// throwing. operator_new.cc replaces operator new and delete of whatever it is linked into. Any thread.
namespace weft {

// While one lives, `new` on this thread does not fail before the reserve is used up too.
class MustNotFail {
 public:
  MustNotFail();
  ~MustNotFail();
  MustNotFail(const MustNotFail&) = delete;
  MustNotFail& operator=(const MustNotFail&) = delete;
};

// The memory behind operator new and delete. Null: there is none, and nobody must not fail.
void* allocateOrReserve(size_t bytes);
void giveBack(void* memory) noexcept;

}  // namespace weft
