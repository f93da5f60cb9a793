// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <vector>

#include "providers/fault/transport.h"
#include "providers/loop/transport.h"
#include "tests/support/catch.h"
#include "tests/support/seam_end.h"

// What the tests of the fault injector start from. One thread.
namespace weft::test {

constexpr size_t kSideBytes = 65536;

// Two joined ends over loop, both decorated; faults are switched on for the left one once they are joined.
struct Sides {
  explicit Sides(fault::FaultOptions options = {}, loop::LoopOptions network = {})
      : left(loop::makeTransport(network), std::move(options)),
        right(loop::makeTransport(network), {}),
        a(left, kSideBytes),
        b(right, kSideBytes) {
    joinEnds(a, b);
    a.fill(1);
  }
  std::shared_ptr<fault::RuleState> add(fault::FaultRule rule) {
    return left.control()->add(std::move(rule));
  }

  // Posts `count` works of 8 bytes to places of their own; imm and context say which one.
  void post(uint32_t count, Opcode op = Opcode::writeNotify) {
    for (uint32_t i = 0; i < count; i++) {
      Work work = a.work(op, 8 * next, 8 * next, 8, next);
      work.imm = next++;
      REQUIRE(a.post(work));
    }
  }
  bool landed(uint32_t index) const { return b.holds(8 * index, a, 8 * index, 8); }
  std::vector<uint32_t> imms() const {
    std::vector<uint32_t> all;
    for (const Completion& completion : b.seen)
      if (completion.kind == CompletionKind::notified) all.push_back(completion.imm);
    return all;
  }

  fault::FaultTransport left, right;
  SeamEnd a, b;
  uint32_t next = 0;
};

using Imms = std::vector<uint32_t>;

}  // namespace weft::test
