// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>

// Memory that a rank is refused, as where its process has a limit: within the calls of its NCCL threads, a
// request after so many others finds none, once. What is played, and what the world needs itself, has memory
// of its own. The linker leads the product's malloc here. Used by one thread.
namespace weft::world {

struct Refusal {
  uint64_t before = 0;  // so many requests are granted first
  bool due = false;     // one is to be refused
};

// While it lives, the calls are a rank's.
class Refusing {
 public:
  explicit Refusing(Refusal* refusal);  // null: nothing is refused
  ~Refusing();
  Refusing(const Refusing&) = delete;
  Refusing& operator=(const Refusing&) = delete;

 private:
  Refusal* const before_;
};

// While it lives, they are the world's.
class Granting : public Refusing {
 public:
  Granting() : Refusing(nullptr) {}
};

}  // namespace weft::world
