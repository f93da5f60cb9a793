// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>

// How many objects are on the heap: a program that links this has an operator new that counts. One thread.
namespace weft::world {

int64_t livingObjects();

}  // namespace weft::world
