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
constexpr uint32_t kLines = 20000;

// A copy whose length the compiler knows is moves of its own, which escape ThreadSanitizer.
const volatile size_t lineBytes = sizeof(CtsLine);

CtsLine numbered(uint32_t sequence) {
  CtsLine line;
  line.comm = kComm;
  line.sequence = sequence;
  line.tag = sequence * 3;
  line.slot = sequence & 0xff;
  line.offset = uint64_t{sequence} << 20;
  line.size = sequence + 1;
  line.next = static_cast<uint16_t>(sequence % kRingLines);
  seal(&line);
  return line;
}

}  // namespace

// As with a card in software: nothing orders the two threads but the bytes themselves, which is why the
// numbers they exchange here are relaxed ones. Under ThreadSanitizer each access to the line is on trial,
// too.
TEST_CASE("a line is awaited, read and erased while another thread writes there") {
  alignas(64) std::byte memory[sizeof(CtsLine)] = {};
  std::atomic<uint32_t> erased{0};
  std::thread card([&] {
    for (uint32_t sequence = 1; sequence <= kLines; sequence++) {
      const CtsLine line = numbered(sequence);
      std::memcpy(memory, &line, lineBytes);
      while (erased.load(std::memory_order_relaxed) < sequence) std::this_thread::yield();
    }
  });
  uint32_t wrong = 0;
  for (uint32_t sequence = 1; sequence <= kLines; sequence++) {
    CtsLine line;
    while (!lineBegins(memory, kComm, sequence) || !readLine(memory, &line)) std::this_thread::yield();
    const CtsLine expected = numbered(sequence);
    wrong += line.tag != expected.tag || line.next != expected.next;
    const HeldLine held(memory);
    wrong += held.slot() != expected.slot || held.offset() != expected.offset || held.size() != expected.size;
    eraseLine(memory);
    wrong += lineBegins(memory, kComm, sequence);
    erased.store(sequence, std::memory_order_relaxed);
  }
  card.join();
  CHECK(wrong == 0);
}
