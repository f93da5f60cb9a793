// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/crc32c.h"

#include <algorithm>
#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

namespace weft {

namespace {

uint64_t word(const std::byte* at) {
  uint64_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// By tables, eight bytes a step (slicing by 8): table t is for a byte that t more bytes follow.
constexpr uint32_t kPolynomial = 0x82f63b78;  // bits reversed
using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables makeTables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; byte++) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ kPolynomial : crc >> 1;
    tables[0][byte] = crc;
  }
  for (size_t t = 1; t < tables.size(); t++)
    for (size_t byte = 0; byte < 256; byte++)
      tables[t][byte] = tables[t - 1][byte] >> 8 ^ tables[0][tables[t - 1][byte] & 255];
  return tables;
}
constexpr Tables kTables = makeTables();

uint32_t sumByTables(const std::byte* at, size_t bytes) {
  uint32_t crc = ~0u;
  for (; bytes >= 8; bytes -= 8, at += 8) {
    const uint64_t next = word(at) ^ crc;
    crc = 0;
    for (size_t i = 0; i < 8; i++) crc ^= kTables[7 - i][next >> 8 * i & 255];
  }
  for (; bytes > 0; bytes--, at++) crc = crc >> 8 ^ kTables[0][(crc ^ std::to_integer<uint32_t>(*at)) & 255];
  return ~crc;
}

// The processor's instruction:

#if defined(__x86_64__)
#define WEFT_HAS_CRC __attribute__((target("sse4.2")))
bool hasInstruction() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("sse4.2");
}
WEFT_HAS_CRC inline uint32_t step(uint32_t crc, uint64_t next) {
  return static_cast<uint32_t>(_mm_crc32_u64(crc, next));
}
WEFT_HAS_CRC inline uint32_t stepByte(uint32_t crc, uint8_t next) {
  return _mm_crc32_u8(crc, next);
}
#elif defined(__aarch64__)
#define WEFT_HAS_CRC __attribute__((target("+crc")))
bool hasInstruction() {
  constexpr unsigned long kCrc = 1 << 7;  // HWCAP_CRC32
  return (getauxval(AT_HWCAP) & kCrc) != 0;
}
WEFT_HAS_CRC inline uint32_t step(uint32_t crc, uint64_t next) {
  return __crc32cd(crc, next);
}
WEFT_HAS_CRC inline uint32_t stepByte(uint32_t crc, uint8_t next) {
  return __crc32cb(crc, next);
}
#else
#define WEFT_HAS_CRC
bool hasInstruction() {
  return false;
}
uint32_t step(uint32_t crc, uint64_t) {
  return crc;
}
uint32_t stepByte(uint32_t crc, uint8_t) {
  return crc;
}
#endif

WEFT_HAS_CRC uint32_t sumByInstruction(const std::byte* at, size_t bytes) {
  uint32_t crc = ~0u;
  for (; bytes >= 8; bytes -= 8, at += 8) crc = step(crc, word(at));
  for (; bytes > 0; bytes--, at++) crc = stepByte(crc, std::to_integer<uint8_t>(*at));
  return ~crc;
}

// Three parts side by side: a result takes three cycles, and one begins each cycle.
WEFT_HAS_CRC void sumThree(const std::byte* at, size_t part, uint32_t* sums) {
  uint32_t first = ~0u, second = ~0u, third = ~0u;
  size_t i = 0;
  for (; i + 8 <= part; i += 8) {
    first = step(first, word(at + i));
    second = step(second, word(at + part + i));
    third = step(third, word(at + 2 * part + i));
  }
  for (; i < part; i++) {
    first = stepByte(first, std::to_integer<uint8_t>(at[i]));
    second = stepByte(second, std::to_integer<uint8_t>(at[part + i]));
    third = stepByte(third, std::to_integer<uint8_t>(at[2 * part + i]));
  }
  sums[0] = ~first;
  sums[1] = ~second;
  sums[2] = ~third;
}

void partsByInstruction(std::span<const std::byte> bytes, size_t part, std::span<uint32_t> sums) {
  size_t at = 0;
  size_t i = 0;
  for (; bytes.size() - at >= 3 * part; at += 3 * part, i += 3) sumThree(bytes.data() + at, part, &sums[i]);
  for (; at < bytes.size(); at += part, i++)
    sums[i] = sumByInstruction(bytes.data() + at, std::min(part, bytes.size() - at));
}

void partsByTables(std::span<const std::byte> bytes, size_t part, std::span<uint32_t> sums) {
  for (size_t at = 0, i = 0; at < bytes.size(); at += part, i++)
    sums[i] = sumByTables(bytes.data() + at, std::min(part, bytes.size() - at));
}

}  // namespace

CrcOfParts crcByTables() {
  return &partsByTables;
}

CrcOfParts crcByInstruction() {
  static const bool has = hasInstruction();
  return has ? &partsByInstruction : nullptr;
}

void crc32cOfParts(std::span<const std::byte> bytes, size_t part, std::span<uint32_t> sums) {
  static const CrcOfParts way = crcByInstruction() ? crcByInstruction() : crcByTables();
  way(bytes, part, sums);
}

uint32_t crc32c(std::span<const std::byte> bytes) {
  uint32_t sum = 0;
  if (!bytes.empty()) crc32cOfParts(bytes, bytes.size(), {&sum, 1});
  return sum;
}

}  // namespace weft
