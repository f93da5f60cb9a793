// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/crc32c.h"

#include <cstring>
#include <vector>

#include "tests/support/catch.h"

// Both ways to sum, against the values of RFC 3720 and against each other.
using namespace weft;

namespace {

std::vector<CrcOfParts> ways() {
  std::vector<CrcOfParts> ways{crcByTables()};
  if (crcByInstruction()) ways.push_back(crcByInstruction());
  return ways;
}

uint32_t sumOf(CrcOfParts way, std::span<const std::byte> bytes) {
  uint32_t sum = 0;
  way(bytes, bytes.size(), {&sum, 1});
  return sum;
}

std::vector<std::byte> pattern(size_t bytes) {
  std::vector<std::byte> out(bytes);
  uint32_t state = 1;
  for (std::byte& byte : out) byte = std::byte((state = state * 1664525 + 1013904223) >> 24);
  return out;
}

}  // namespace

TEST_CASE("the sums are those of the standard") {
  std::vector<std::byte> ascending(32), zeros(32), ones(32, std::byte{255});
  for (size_t i = 0; i < 32; i++) ascending[i] = std::byte(i);
  for (const CrcOfParts way : ways()) {
    CHECK(sumOf(way, zeros) == 0x8a9136aa);
    CHECK(sumOf(way, ones) == 0x62a8ab43);
    CHECK(sumOf(way, ascending) == 0x46dd794e);
    CHECK(sumOf(way, std::as_bytes(std::span("123456789", 9))) == 0xe3069283);
  }
  CHECK(crc32c({}) == 0);
}

TEST_CASE("parts have the sums that each has alone, at any length and place") {
  const auto bytes = pattern(3000);
  for (const CrcOfParts way : ways())
    for (const size_t part : {1, 7, 8, 64, 100, 1000, 3000})
      for (const size_t from : {0, 1, 3})
        for (const size_t length : {1, 63, 64, 299, 300, 2990}) {
          const auto some = std::span(bytes).subspan(from, length);
          std::vector<uint32_t> sums((length + part - 1) / part);
          way(some, part, sums);
          for (size_t i = 0; i < sums.size(); i++) {
            const auto one = some.subspan(i * part, std::min(part, length - i * part));
            REQUIRE(sums[i] == sumOf(crcByTables(), one));
          }
        }
}

TEST_CASE("a flipped bit changes the sum") {
  auto bytes = pattern(5000);
  const uint32_t before = crc32c(bytes);
  for (size_t i = 0; i < bytes.size(); i += 37) {
    bytes[i] ^= std::byte{4};
    CHECK(crc32c(bytes) != before);
    bytes[i] ^= std::byte{4};
  }
  CHECK(crc32c(bytes) == before);
}
