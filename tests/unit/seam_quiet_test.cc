// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <atomic>
#include <cstdlib>
#include <new>
#include <thread>

#include "providers/fault/transport.h"
#include "providers/loop/transport.h"
#include "tests/support/catch.h"
#include "tests/support/seam_end.h"

// Posting and polling allocate nothing once they are warm. A program of its own: it counts every allocation.
using namespace weft;
using namespace weft::test;

namespace {

std::atomic<size_t> allocations{0};

void* counted(size_t n) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(n);
}

struct Case {
  bool faulty;
  loop::Landing landing;
  Delivery delivery;
};

std::unique_ptr<Transport> make(const Case& c) {
  loop::LoopOptions options;
  options.landing = c.landing;
  options.delivery = c.delivery;
  auto inner = loop::makeTransport(options);
  if (!c.faulty) return inner;
  return fault::makeTransport(std::move(inner));
}

// One exchange of every kind of work, in both directions, over plain polls.
void exchange(SeamEnd& a, SeamEnd& b) {
  Completion found[64];
  for (int i = 0; i < 40; i++) {
    for (SeamEnd* end : {&a, &b}) {
      const Opcode op = i % 3 == 0 ? Opcode::read : i % 3 == 1 ? Opcode::write : Opcode::writeNotify;
      Work work = end->work(op, 0, 32768, 1000);
      work.unsignaled = i % 5 == 0;
      end->post(work);
    }
    for (SeamEnd* end : {&a, &b}) end->queue->poll(found);
  }
}

}  // namespace

void* operator new(size_t n) {
  return counted(n);
}
void* operator new[](size_t n) {
  return counted(n);
}
void* operator new(size_t n, const std::nothrow_t&) noexcept {
  return counted(n);
}
void* operator new[](size_t n, const std::nothrow_t&) noexcept {
  return counted(n);
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete[](void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, size_t) noexcept {
  std::free(p);
}
void operator delete[](void* p, size_t) noexcept {
  std::free(p);
}

TEST_CASE("posting and polling do not allocate after warm-up") {
  const Case c{GENERATE(false, true), GENERATE(loop::Landing::atOnce, loop::Landing::whenPolled),
               GENERATE(Delivery::always, Delivery::accepted)};
  const auto left = make(c), right = make(c);
  SeamEnd a(*left, 65536), b(*right, 65536);
  joinEnds(a, b);
  for (int i = 0; i < 3; i++) exchange(a, b);
  const size_t before = allocations.load();
  for (int i = 0; i < 50; i++) exchange(a, b);
  CHECK(allocations.load() == before);
  auto proof = std::make_unique<int>(1);  // that the counter counts
  CHECK(allocations.load() > before);
}
