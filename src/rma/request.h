// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>

#include "src/rma/window.h"

// An operation that NCCL waits for. The team owns all of them and uses each again once its end was told. The
// team's lock guards it.
namespace weft::rma {

struct Request {
  enum class State : uint8_t {
    free,
    moving,  // its head or some of its bytes have not left, or have not come
    done,    // nothing of it is under way; nobody was told yet
    failed,  // its peer is lost; told with each test
  };

  State state = State::free;
  bool headLeft = false;  // nothing reads the memory of the head any more
  uint32_t rank = 0;
  uint64_t left = 0;         // bytes that have not left, or of a get, not come
  Window* window = nullptr;  // this rank's memory that is read or written; null: none

  // The window is free of it as soon as nothing moves, as NCCL may test it much later.
  void enter(State next) {
    if (state == State::moving && window) window->unuse(rank);
    state = next;
    if (state == State::moving && window) window->use(rank);
  }
  void settle() {
    if (state == State::moving && headLeft && left == 0) enter(State::done);
  }
};

}  // namespace weft::rma
