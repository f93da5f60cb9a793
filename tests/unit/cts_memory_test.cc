// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <atomic>
#include <cstring>
#include <thread>

#include "src/core/wire.h"
#include "tests/support/catch.h"

using namespace weft;
using namespace weft::core;

namespace {

constexpr uint32_t kComm = 7;
constexpr uint32_t kLines = 4000;  // each waits for the other thread: on a busy machine, for its turn

// A copy whose length the compiler knows is moves of its own, which escape ThreadSanitizer.
const volatile size_t ctsBytes = sizeof(Cts);

Cts numbered(uint32_t sequence) {
  Cts cts;
  cts.comm = kComm;
  cts.sequence = sequence;
  cts.tag = sequence * 3;
  cts.slot = sequence & 0xff;
  cts.offset = uint64_t{sequence} << 20;
  cts.size = sequence + 1;
  cts.next = static_cast<uint16_t>(sequence % kRingPositions);
  seal(&cts);
  return cts;
}

}  // namespace

// As with a card in software: nothing orders the two threads but the bytes themselves, which is why the
// numbers they exchange here are relaxed ones. Under ThreadSanitizer each access to the line is on trial,
// too.
TEST_CASE("a line is awaited, read and erased while another thread writes there") {
  alignas(64) std::byte memory[sizeof(Cts)] = {};
  std::atomic<uint32_t> erased{0};
  std::thread card([&] {
    for (uint32_t sequence = 1; sequence <= kLines; sequence++) {
      const Cts cts = numbered(sequence);
      std::memcpy(memory, &cts, ctsBytes);
      while (erased.load(std::memory_order_relaxed) < sequence) std::this_thread::yield();
    }
  });
  uint32_t wrong = 0;
  for (uint32_t sequence = 1; sequence <= kLines; sequence++) {
    Cts cts;
    while (!ctsBegins(memory, kComm, sequence) || !readCts(memory, &cts)) std::this_thread::yield();
    const Cts expected = numbered(sequence);
    wrong += cts.tag != expected.tag || cts.next != expected.next;
    const HeldCts held(memory);
    wrong += held.slot() != expected.slot || held.offset() != expected.offset || held.size() != expected.size;
    eraseCts(memory);
    wrong += ctsBegins(memory, kComm, sequence);
    erased.store(sequence, std::memory_order_relaxed);
  }
  card.join();
  CHECK(wrong == 0);
}
