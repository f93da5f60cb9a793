// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/softgpu/kernels/element.h"
#include "tests/softgpu/kernels/floats.h"
#include "tests/softgpu/kernels/function.h"
#include "tests/softgpu/kernels/layout.h"
#include "tests/softgpu/kernels/pat_plan.h"
#include "tests/support/catch.h"

using namespace softgpu;

TEST_CASE("a version has a layout or is refused") {
  CHECK(findLayout(22809) != nullptr);
  CHECK(findLayout(23007) != nullptr);
  CHECK(findLayout(22809) != findLayout(23007));
  CHECK(findLayout(21805) == nullptr);
  CHECK(findLayout(23102) == nullptr);
  CHECK(layoutRefusal(22809).empty());
  CHECK(layoutRefusal(23102).find("NCCL 23102") == 0);
}

TEST_CASE("device functions are numbered as NCCL numbers them") {
  // From the tables that NCCL's build generates: 670 functions in 2.28.9, sorted by name.
  REQUIRE(findFunction(22809, 0) != nullptr);
  CHECK(findFunction(22809, 0)->text() == "AllGather COLLNET_DIRECT SIMPLE");
  REQUIRE(findFunction(22809, 669) != nullptr);
  CHECK(findFunction(22809, 669)->text() == "SendRecv");
  CHECK(findFunction(22809, 670) == nullptr);
}

namespace {

template <typename Small>
bool survives(unsigned bits) {
  using Bits = decltype(Small::bits);
  const auto value = Small::decode(static_cast<Bits>(bits));
  return value != value || Small::encode(value) == static_cast<Bits>(bits);
}

}  // namespace

TEST_CASE("PAT: each block travels once, along the dimension of its lowest bit") {
  for (const int ranks : {2, 3, 5, 8, 13, 64}) {
    for (const size_t part : {size_t{1}, size_t{1000}, size_t{100'000}}) {
      for (const bool mirrored : {false, true}) {
        const PatPlan plan(ranks, 65536, part);
        std::vector<int> times(static_cast<size_t>(ranks));
        for (int dimension = 0; dimension < plan.dimensions(); ++dimension) {
          for (const auto& blocks : plan.steps(dimension, mirrored)) {
            CHECK(blocks.size() * part <= std::max(size_t{65536}, part));
            for (const int block : blocks) {
              REQUIRE(block < ranks);
              CHECK((block & -block) == 1 << dimension);
              ++times[static_cast<size_t>(block)];
            }
          }
        }
        CHECK(times[0] == 0);
        for (size_t block = 1; block < times.size(); ++block) CHECK(times[block] == 1);
      }
    }
  }
}

// As NCCL 2.28.9's own rule has it: its proxies wait for so many.
TEST_CASE("PAT: small blocks share steps") {
  const auto counts = [](int ranks, size_t part, int dimension) {
    return PatPlan(ranks, 65536, part).steps(dimension, false).size();
  };
  CHECK(counts(8, 100, 0) == 1);
  CHECK(counts(8, 65536, 0) == 4);
  CHECK(counts(8, 65536, 2) == 1);
  CHECK(counts(8, 32768, 0) == 2);
  CHECK(counts(64, 16384, 0) == 8);
}

TEST_CASE("small floats come back as they were") {
  for (unsigned bits = 0; bits < 65536; ++bits) {
    if (!survives<Half>(bits) || !survives<BFloat16>(bits)) FAIL("16 bits " << bits);
  }
  // Infinity of the 8-bit type with one saturates when it is stored.
  for (unsigned bits = 0; bits < 256; ++bits) {
    if (!survives<Float8E4M3>(bits) || (!survives<Float8E5M2>(bits) && (bits & 0x7f) != 0x7c))
      FAIL("8 bits " << bits);
  }
}

TEST_CASE("small floats round to nearest even") {
  CHECK(Half::decode(Half::encode(2049.0F)) == 2048.0F);
  CHECK(Half::decode(Half::encode(2051.0F)) == 2052.0F);
  CHECK(Half::encode(65519.0F) == 0x7bff);
  CHECK(Half::encode(65520.0F) == 0x7c00);
  CHECK(Half::encode(5.960464477539063e-8F) == 1);
  CHECK(BFloat16::encode(1.0F) == 0x3f80);
  CHECK(Float8E4M3::decode(Float8E4M3::encode(1000.0F)) == 448.0F);
}

TEST_CASE("minimum and maximum follow the argument") {
  const int signedValues[2] = {-5, 3};
  int result = 0;
  constexpr uint64_t kSign = 0x80000000, kAll = 0xffffffff;
  makeReduction("MinMax", "i32", kSign)->reduce(&result, &signedValues[0], &signedValues[1], 1);
  CHECK(result == -5);
  makeReduction("MinMax", "i32", kSign ^ kAll)->reduce(&result, &signedValues[0], &signedValues[1], 1);
  CHECK(result == 3);
  makeReduction("MinMax", "u32", kAll)->reduce(&result, &signedValues[0], &signedValues[1], 1);
  CHECK(result == -5);
}

TEST_CASE("averages") {
  int value = -7;
  makeReduction("SumPostDiv", "i32", 2 << 1 | 1)->after(&value, 1);
  CHECK(value == -3);
  float single = 6, half = 0;
  uint64_t argument = 0;
  const float factor = 0.5F;
  std::memcpy(&argument, &factor, sizeof factor);
  makeReduction("PreMulSum", "f32", argument)->before(&half, &single, 1);
  CHECK(half == 3.0F);
}
