// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/number.h"

#include <cstdint>

#include "tests/support/catch.h"

using namespace weft;

TEST_CASE("a number is the whole text") {
  CHECK(parseNumber<int>("4711") == 4711);
  CHECK(parseNumber<int>("-5") == -5);
  CHECK(parseNumber<uint64_t>("18446744073709551615") == UINT64_MAX);
  CHECK(parseNumber<uint64_t>("02fc", 16) == 0x2fc);
  for (const char* text : {"", " 5", "5 ", "+5", "5x", "0x10", "-", "99999999999"})
    CHECK_FALSE(parseNumber<int>(text).has_value());
  CHECK_FALSE(parseNumber<uint64_t>("-1").has_value());
  CHECK_FALSE(parseNumber<uint64_t>("18446744073709551616").has_value());
}

TEST_CASE("a number of an option is digits up to a limit") {
  uint8_t small = 7;
  CHECK(readNumber("200", 255, &small));
  CHECK(small == 200);
  uint64_t large = 7;
  CHECK(readNumber("18446744073709551615", UINT64_MAX, &large));
  CHECK(large == UINT64_MAX);
  for (const char* text : {"", "256", "-1", "+1", " 1", "1 ", "0x1", "18446744073709551616"})
    CHECK_FALSE(readNumber(text, 255, &small));
  CHECK(small == 200);
}
