// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <csetjmp>
#include <cstddef>
#include <functional>
#include <memory>
#include <ucontext.h>
#include <vector>

// A thread of execution that runs only while somebody lets it: a stack of its own, and no thread of the
// system. All fibers of a world and their scheduler belong to one thread, so nothing of them runs in
// parallel.
namespace weft::world {

class Fiber {
 public:
  explicit Fiber(std::function<void()> body);
  ~Fiber();  // it has ended, or was never run: what lies on its stack is not destroyed
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  void run();    // the scheduler: until the fiber leaves or ends
  void leave();  // the fiber itself: back to the scheduler
  bool over() const { return over_; }

 private:
  struct Unmap {
    void operator()(std::byte* stack) const;
  };
  using Stack = std::unique_ptr<std::byte, Unmap>;

  static void enter(unsigned high, unsigned low);
  static Stack takeStack();
  static std::vector<Stack>& spareStacks();
  void begin();
  void runCheaply();

  std::function<void()> body_;
  Stack stack_;
  ucontext_t here_{};
  ucontext_t scheduler_{};
  std::jmp_buf hereAgain_{};
  std::jmp_buf schedulerAgain_{};
  bool entered_ = false;
  void* fakeStack_ = nullptr;            // of a sanitizer, while the fiber does not run
  void* schedulersFakeStack_ = nullptr;  // while it does
  const void* schedulersStack_ = nullptr;
  size_t schedulersStackBytes_ = 0;
  void* threadSanitizers_ = nullptr;  // what it knows us by, and the scheduler
  void* threadSanitizersScheduler_ = nullptr;
  bool over_ = false;
};

}  // namespace weft::world
