// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/world/fiber.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <utility>

// The run-time library of AddressSanitizer has the first two, that of ThreadSanitizer the others; elsewhere
// they are null.
extern "C" {
__attribute__((weak)) void __sanitizer_start_switch_fiber(void** save, const void* bottom, size_t bytes);
__attribute__((weak)) void __sanitizer_finish_switch_fiber(void* saved, const void** bottom, size_t* bytes);
__attribute__((weak)) void* __tsan_get_current_fiber();
__attribute__((weak)) void* __tsan_create_fiber(unsigned flags);
__attribute__((weak)) void __tsan_destroy_fiber(void* fiber);
__attribute__((weak)) void __tsan_switch_to_fiber(void* fiber, unsigned flags);
}

namespace weft::world {

namespace {

constexpr size_t kStackBytes = size_t{256} << 10;
constexpr size_t kPage = 4096;

void leaving(void** save, const void* bottom, size_t bytes) {
  if (__sanitizer_start_switch_fiber) __sanitizer_start_switch_fiber(save, bottom, bytes);
}

void arrived(void* saved, const void** bottom, size_t* bytes) {
  if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(saved, bottom, bytes);
}

// A switch orders what was done before it, as all of a world belongs to one thread.
void follow(void* fiber) {
  if (__tsan_switch_to_fiber) __tsan_switch_to_fiber(fiber, 0);
}

// A sanitizer follows contexts, and no jumps.
bool cheaply() {
  return !__sanitizer_start_switch_fiber && !__tsan_switch_to_fiber;
}

}  // namespace

void Fiber::Unmap::operator()(std::byte* stack) const {
  ::munmap(stack, kStackBytes);
}

// Worlds come and go by the thousand, and a fresh stack costs a fault for each of its pages.
std::vector<Fiber::Stack>& Fiber::spareStacks() {
  static std::vector<Stack> spare;
  return spare;
}

Fiber::Stack Fiber::takeStack() {
  auto& spare = spareStacks();
  if (!spare.empty()) {
    Stack stack = std::move(spare.back());
    spare.pop_back();
    return stack;
  }
  void* made = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED || ::mprotect(made, kPage, PROT_NONE) != 0) {
    std::fprintf(stderr, "world: no memory for another fiber\n");
    std::abort();
  }
  return Stack(static_cast<std::byte*>(made));
}

Fiber::Fiber(std::function<void()> body) : body_(std::move(body)), stack_(takeStack()) {
  ::getcontext(&here_);
  here_.uc_stack.ss_sp = stack_.get();
  here_.uc_stack.ss_size = kStackBytes;
  here_.uc_link = nullptr;
  if (__tsan_create_fiber) threadSanitizers_ = __tsan_create_fiber(0);
  const auto self = reinterpret_cast<uintptr_t>(this);
  ::makecontext(&here_, reinterpret_cast<void (*)()>(&Fiber::enter), 2, static_cast<unsigned>(self >> 32),
                static_cast<unsigned>(self));
}

Fiber::~Fiber() {
  if (threadSanitizers_) __tsan_destroy_fiber(threadSanitizers_);
  spareStacks().push_back(std::move(stack_));
}

void Fiber::enter(unsigned high, unsigned low) {
  reinterpret_cast<Fiber*>(static_cast<uintptr_t>(high) << 32 | low)->begin();
}

void Fiber::begin() {
  arrived(nullptr, &schedulersStack_, &schedulersStackBytes_);
  body_();
  body_ = nullptr;
  over_ = true;
  leaving(nullptr, schedulersStack_, schedulersStackBytes_);
  follow(threadSanitizersScheduler_);
  if (cheaply()) ::_longjmp(schedulerAgain_, 1);
  ::setcontext(&scheduler_);
}

void Fiber::run() {
  if (cheaply()) return runCheaply();
  leaving(&schedulersFakeStack_, stack_.get(), kStackBytes);
  if (__tsan_get_current_fiber) threadSanitizersScheduler_ = __tsan_get_current_fiber();
  follow(threadSanitizers_);
  ::swapcontext(&scheduler_, &here_);
  arrived(schedulersFakeStack_, nullptr, nullptr);
}

void Fiber::leave() {
  if (cheaply()) {
    if (::_setjmp(hereAgain_) == 0) ::_longjmp(schedulerAgain_, 1);
    return;
  }
  leaving(&fakeStack_, schedulersStack_, schedulersStackBytes_);
  follow(threadSanitizersScheduler_);
  ::swapcontext(&here_, &scheduler_);
  arrived(fakeStack_, &schedulersStack_, &schedulersStackBytes_);
}

// A context takes two system calls for its signal mask with each switch, which nobody changes here. So it is
// used to enter a fiber, and from then on jumps are enough.
void Fiber::runCheaply() {
  if (::_setjmp(schedulerAgain_) != 0) return;
  if (entered_) ::_longjmp(hereAgain_, 1);
  entered_ = true;
  ::setcontext(&here_);
}

}  // namespace weft::world
