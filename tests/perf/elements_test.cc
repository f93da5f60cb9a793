// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// The arithmetic that every other test of `weft perf` believes: 16-bit floats against a search over all of
// them, and data whose reduction comes out the same in every order and by plain arithmetic.
#include "tools/perf/elements.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/support/catch.h"
#include "tools/perf/small_floats.h"

namespace weft::perf {

namespace {

template <class T>
T fromBits(uint16_t bits) {
  return std::bit_cast<T>(bits);
}

template <class T>
float valueOf(uint16_t bits) {
  return static_cast<float>(fromBits<T>(bits));
}

// What a half or bfloat16 means, from its definition.
double meaning(uint16_t bits, int fractionBits, int bias) {
  const int exponentBits = 15 - fractionBits;
  const int exponent = bits >> fractionBits & ((1 << exponentBits) - 1);
  const int fraction = bits & ((1 << fractionBits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == (1 << exponentBits) - 1) return fraction != 0 ? std::nan("") : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fractionBits);
  return sign * std::ldexp(fraction + (1 << fractionBits), exponent - bias - fractionBits);
}

// Each value, and the middle between it and the next and both neighbours of that middle, must round as IEEE
// says: to the nearest, from the middle to the even one.
template <class T>
void checkRounding() {
  int checked = 0;
  for (uint32_t bits = 0; bits < 0x7fff; ++bits) {
    const float low = valueOf<T>(static_cast<uint16_t>(bits));
    const float high = valueOf<T>(static_cast<uint16_t>(bits + 1));
    if (!std::isfinite(high)) continue;
    const float middle = low / 2 + high / 2;
    const auto even = static_cast<uint16_t>(bits % 2 == 0 ? bits : bits + 1);
    for (const float sign : {1.0f, -1.0f}) {
      const auto mark = static_cast<uint16_t>(sign < 0 ? 0x8000 : 0);
      REQUIRE(std::bit_cast<uint16_t>(T(sign * low)) == (mark | bits));
      if (middle == low || middle == high) continue;  // too small for a float to stand between
      REQUIRE(std::bit_cast<uint16_t>(T(sign * middle)) == (mark | even));
      REQUIRE(std::bit_cast<uint16_t>(T(sign * std::nextafter(middle, 0.0f))) == (mark | bits));
      REQUIRE(std::bit_cast<uint16_t>(T(sign * std::nextafter(middle, INFINITY))) == (mark | (bits + 1)));
      ++checked;
    }
  }
  REQUIRE(checked > 60000);
}

TEST_CASE("every half and bfloat16 means what its bits say") {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto b = static_cast<uint16_t>(bits);
    const double half = meaning(b, 10, 15);
    const double brain = meaning(b, 7, 127);
    if (std::isnan(half))
      REQUIRE(std::isnan(valueOf<Half>(b)));
    else
      REQUIRE(static_cast<double>(valueOf<Half>(b)) == half);
    if (std::isnan(brain))
      REQUIRE(std::isnan(valueOf<BFloat16>(b)));
    else
      REQUIRE(static_cast<double>(valueOf<BFloat16>(b)) == brain);
  }
}

TEST_CASE("floats round to the nearest half and bfloat16") {
  checkRounding<Half>();
  checkRounding<BFloat16>();
  REQUIRE(std::isinf(static_cast<float>(Half(65520.0f))));
  REQUIRE(static_cast<float>(Half(65519.0f)) == 65504.0f);
  REQUIRE(std::isnan(static_cast<float>(Half(std::nanf("")))));
  REQUIRE(std::isnan(static_cast<float>(BFloat16(std::numeric_limits<float>::signaling_NaN()))));
}

std::vector<std::byte> dataOf(const Pattern& pattern, const ElementType& type) {
  std::vector<std::byte> data(kPatternElements * type.bytes);
  pattern.fill(data);
  return data;
}

// From the last rank to the first: the other way round than Pattern::reduced.
std::vector<std::byte> reducedBackwards(const ElementType& type, RedOp op, int size) {
  auto result = dataOf(Pattern::ofRank(type, op, {size - 1, size}, 7), type);
  for (int rank = size - 2; rank >= 0; --rank) {
    const auto next = dataOf(Pattern::ofRank(type, op, {rank, size}, 7), type);
    type.reduce(op, result.data(), next.data(), result.data(), kPatternElements);
  }
  return result;
}

TEST_CASE("reductions are the same in every order, and no rank's share can be missing") {
  const auto types = parseTypes("all").take();
  const auto ops = parseRedOps("all").take();
  for (const int size : {2, 3, 5, 16, 300}) {
    for (const ElementType* type : types) {
      for (const RedOp op : ops) {
        INFO(size << " ranks, " << type->name << ", " << redOpName(op));
        const Pattern whole = Pattern::reduced(*type, op, size, 7);
        REQUIRE(whole.countWrong(reducedBackwards(*type, op, size)) == 0);
        if (op != RedOp::sum && op != RedOp::prod) continue;
        auto fewer = dataOf(Pattern::ofRank(*type, op, {0, size}, 7), *type);
        for (int rank = 1; rank < size - 1; ++rank) {
          const auto next = dataOf(Pattern::ofRank(*type, op, {rank, size}, 7), *type);
          type->reduce(op, fewer.data(), fewer.data(), next.data(), kPatternElements);
        }
        REQUIRE(whole.countWrong(fewer) > 0);
      }
    }
  }
}

// The smallest exact sums are bfloat16's; here against whole numbers.
TEST_CASE("sums of bfloat16 are those of whole numbers") {
  const ElementType& type = *parseTypes("bfloat16")->front();
  const int size = 8;
  std::vector<int> sums(kPatternElements);
  for (int rank = 0; rank < size; ++rank) {
    const auto data = dataOf(Pattern::ofRank(type, RedOp::sum, {rank, size}, 1), type);
    for (size_t i = 0; i < kPatternElements; ++i) {
      BFloat16 value;
      std::memcpy(&value, data.data() + 2 * i, 2);
      sums[i] += static_cast<int>(static_cast<float>(value));
    }
  }
  const auto reduced = dataOf(Pattern::reduced(type, RedOp::sum, size, 1), type);
  for (size_t i = 0; i < kPatternElements; ++i) {
    BFloat16 value;
    std::memcpy(&value, reduced.data() + 2 * i, 2);
    REQUIRE(static_cast<float>(value) == static_cast<float>(sums[i]));
  }
}

TEST_CASE("a pattern of fewer elements is the beginning of a whole one") {
  const auto types = parseTypes("all");
  for (const ElementType* type : *types) {
    const auto whole = dataOf(Pattern::reduced(*type, RedOp::sum, 3, 7), *type);
    for (const size_t elements :
         {size_t{0}, size_t{1}, size_t{100}, kPatternElements, 3 * kPatternElements}) {
      const Pattern fewer = Pattern::reduced(*type, RedOp::sum, 3, 7, elements);
      const size_t count = std::min(elements, kPatternElements);
      const std::span begin(whole.data(), count * type->bytes);
      CHECK(fewer.countWrong(begin) == 0);
      CHECK(fewer.countWrong(begin.subspan(count / 2 * type->bytes), count / 2) == 0);
    }
  }
}

TEST_CASE("types are known by both of their names") {
  REQUIRE(parseTypes("float16")->front() == parseTypes("half")->front());
  REQUIRE(parseTypes("float64")->front()->bytes == 8);
  REQUIRE(parseTypes("all")->size() == 10);
  REQUIRE_FALSE(parseTypes("float8"));
}

}  // namespace

}  // namespace weft::perf
