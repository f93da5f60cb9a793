// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>

// A lack of memory makes a call fail, and the caller hears of it. Where nobody can be told (on the control
// thread, while closing, while unwinding), `new` takes from a reserve of the process instead of throwing.
// operator_new.cc replaces operator new and delete of everything that links it. Any thread.
namespace weft {

// While an object lives, `new` on its thread does not fail before the reserve is used up as well.
class MustNotFail {
 public:
  MustNotFail();
  ~MustNotFail();
  MustNotFail(const MustNotFail&) = delete;
  MustNotFail& operator=(const MustNotFail&) = delete;
};

// The memory behind operator new and delete. Null: there is none, and the thread may fail.
void* allocateOrReserve(size_t bytes);
void giveBack(void* memory) noexcept;

}  // namespace weft
