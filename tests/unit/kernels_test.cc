// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/kernels.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "src/base/random.h"
#include "tests/support/catch.h"

// Every reduction against one that is written out an element at a time, for every instruction set that runs
// here.
using namespace weft;
using namespace weft::coll;

namespace {

float fromHalf(uint16_t half) {
  const int exponent = half >> 10 & 31;
  const int mantissa = half & 1023;
  float value = 0;
  if (exponent == 31)
    value = mantissa ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
  else if (exponent == 0)
    value = std::ldexp(static_cast<float>(mantissa), -24);
  else
    value = std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
  return half & 0x8000 ? -value : value;
}

// The nearest half, ties to even, found by looking at its neighbours.
uint16_t toHalf(float value) {
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const double magnitude = std::fabs(static_cast<double>(value));
  if (std::isnan(value)) return 0x7e00;
  if (magnitude >= 65520) return static_cast<uint16_t>(sign | 0x7c00);
  const int exponent = std::max(magnitude > 0 ? std::ilogb(magnitude) : -14, -14);
  const double unit = std::ldexp(1.0, exponent - 10);
  const auto steps = static_cast<uint32_t>(std::nearbyint(magnitude / unit));
  const double rounded = steps * unit;
  if (rounded >= std::ldexp(1.0, -14)) {
    const int e = std::ilogb(rounded);
    const auto m = static_cast<uint32_t>(rounded / std::ldexp(1.0, e - 10));
    return static_cast<uint16_t>(sign | ((e + 15) << 10) | (m - 1024));
  }
  return static_cast<uint16_t>(sign | steps);
}

float fromBrain(uint16_t brain) {
  return std::bit_cast<float>(uint32_t{brain} << 16);
}

uint16_t toBrain(float value) {
  if (std::isnan(value)) return 0x7fc0;
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t below = bits & 0xffff;
  uint32_t upper = bits >> 16;
  if (below > 0x8000 || (below == 0x8000 && (upper & 1))) upper++;
  return static_cast<uint16_t>(upper);
}

template <class T>
T apply(ReduceOp op, T a, T b) {
  switch (op) {
    case ReduceOp::sum:
      return static_cast<T>(a + b);
    case ReduceOp::prod:
      return static_cast<T>(a * b);
    case ReduceOp::min:
      return (b < a) || (a != a) ? b : a;
    case ReduceOp::max:
      return (a < b) || (a != a) ? b : a;
    default:
      break;
  }
  if constexpr (std::is_integral_v<T>) {
    switch (op) {
      case ReduceOp::bor:
        return a | b;
      default:
        break;
    }
  }
  FAIL("no such operation");
  return a;
}

using Inputs = std::vector<std::vector<std::byte>>;

Inputs makeInputs(size_t count, size_t bytes, uint64_t seed) {
  SeededRandom random(seed);
  Inputs inputs(count, std::vector<std::byte>(bytes));
  for (auto& input : inputs)
    for (auto& byte : input) byte = static_cast<std::byte>(random.next());
  return inputs;
}

template <class T>
T at(const std::vector<std::byte>& bytes, size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
  return value;
}

template <class T>
void putAt(std::vector<std::byte>& bytes, size_t index, T value) {
  std::memcpy(bytes.data() + index * sizeof value, &value, sizeof value);
}

// Of two's complement, without the overflow that C++ leaves undefined.
template <class T>
T wrapping(ReduceOp op, T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (op == ReduceOp::sum) return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    if (op == ReduceOp::prod) return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  }
  return apply(op, a, b);
}

template <class T>
std::vector<std::byte> expectPlain(ReduceOp op, const Inputs& inputs) {
  std::vector<std::byte> out(inputs[0].size());
  for (size_t i = 0; i < out.size() / sizeof(T); i++) {
    T value = at<T>(inputs[0], i);
    for (size_t k = 1; k < inputs.size(); k++) value = wrapping<T>(op, value, at<T>(inputs[k], i));
    putAt(out, i, value);
  }
  return out;
}

std::vector<std::byte> expectHalf(ReduceOp op, const Inputs& inputs, float (*wide)(uint16_t),
                                  uint16_t (*narrow)(float)) {
  std::vector<std::byte> out(inputs[0].size());
  for (size_t i = 0; i < out.size() / 2; i++) {
    float value = wide(at<uint16_t>(inputs[0], i));
    for (size_t k = 1; k < inputs.size(); k++) value = apply(op, value, wide(at<uint16_t>(inputs[k], i)));
    putAt(out, i, narrow(value));
  }
  return out;
}

std::vector<std::byte> expected(ElementType type, ReduceOp op, const Inputs& inputs) {
  switch (type) {
    case ElementType::i8:
      return expectPlain<int8_t>(op, inputs);
    case ElementType::u8:
      return expectPlain<uint8_t>(op, inputs);
    case ElementType::i32:
      return expectPlain<int32_t>(op, inputs);
    case ElementType::u32:
      return expectPlain<uint32_t>(op, inputs);
    case ElementType::i64:
      return expectPlain<int64_t>(op, inputs);
    case ElementType::u64:
      return expectPlain<uint64_t>(op, inputs);
    case ElementType::f16:
      return expectHalf(op, inputs, fromHalf, toHalf);
    case ElementType::bf16:
      return expectHalf(op, inputs, fromBrain, toBrain);
    case ElementType::f32:
      return expectPlain<float>(op, inputs);
    case ElementType::f64:
      return expectPlain<double>(op, inputs);
  }
  return {};
}

bool isNan(ElementType type, const std::vector<std::byte>& bytes, size_t index) {
  switch (type) {
    case ElementType::f16:
      return std::isnan(fromHalf(at<uint16_t>(bytes, index)));
    case ElementType::bf16:
      return std::isnan(fromBrain(at<uint16_t>(bytes, index)));
    case ElementType::f32:
      return std::isnan(at<float>(bytes, index));
    case ElementType::f64:
      return std::isnan(at<double>(bytes, index));
    default:
      return false;
  }
}

// No two NaNs have to be the same.
size_t firstDifference(ElementType type, const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  const size_t size = elementBytes(type);
  for (size_t i = 0; i < a.size() / size; i++) {
    if (std::memcmp(a.data() + i * size, b.data() + i * size, size) == 0) continue;
    if (!isNan(type, a, i) || !isNan(type, b, i)) return i;
  }
  return a.size() / size;
}

std::vector<std::byte> run(const KernelTable& table, ElementType type, ReduceOp op, const Inputs& inputs) {
  std::vector<const void*> pointers;
  for (const auto& input : inputs) pointers.push_back(input.data());
  std::vector<std::byte> out(inputs[0].size());
  table.of[static_cast<size_t>(type)][static_cast<size_t>(op)](pointers.data(), pointers.size(), out.data(),
                                                               out.size() / elementBytes(type));
  return out;
}

template <class Visit>
void eachReduction(Visit visit) {
  for (size_t type = 0; type < kElementTypes; type++)
    for (size_t op = 0; op < kReduceOps; op++)
      if (kPortableKernels.of[type][op]) visit(static_cast<ElementType>(type), static_cast<ReduceOp>(op));
}

}  // namespace

TEST_CASE("the reductions there are are NCCL's, and the daemons' own") {
  size_t count = 0;
  eachReduction([&](ElementType, ReduceOp) { count++; });
  CHECK(count == 10 * 4 + 1);
  CHECK_FALSE(canReduce(ElementType::f32, ReduceOp::bor));
  CHECK_FALSE(canReduce(static_cast<ElementType>(2), ReduceOp::sum));
  CHECK_FALSE(canReduce(static_cast<ElementType>(99), ReduceOp::sum));
  CHECK_FALSE(canReduce(ElementType::f32, static_cast<ReduceOp>(99)));
  for (size_t type = 0; type <= kElementTypes; type++)
    CHECK_FALSE(canReduce(static_cast<ElementType>(type), static_cast<ReduceOp>(kReduceOps)));
  for (const KernelTable* table : runnableKernels())
    for (size_t type = 0; type < kElementTypes; type++)
      for (size_t op = 0; op < kReduceOps; op++)
        CHECK(!table->of[type][op] == !kPortableKernels.of[type][op]);
}

TEST_CASE("every reduction gives what its elements one by one give, on every instruction set") {
  for (const KernelTable* table : runnableKernels()) {
    INFO(table->name);
    eachReduction([&](ElementType type, ReduceOp op) {
      INFO(nameOf(type) << " " << nameOf(op));
      for (const size_t elements : {1, 7, 8, 100, 1031}) {
        for (const size_t count : {1, 2, 3, 8, 17}) {
          const Inputs inputs = makeInputs(count, elements * elementBytes(type), elements * 31 + count);
          const auto got = run(*table, type, op, inputs);
          const auto want = expected(type, op, inputs);
          REQUIRE(firstDifference(type, got, want) == elements);
        }
      }
    });
  }
}

TEST_CASE("all half-precision numbers pass through unchanged") {
  for (const KernelTable* table : runnableKernels()) {
    for (const ElementType type : {ElementType::f16, ElementType::bf16}) {
      Inputs inputs(1, std::vector<std::byte>(2 * 65536));
      for (size_t i = 0; i < 65536; i++) putAt(inputs[0], i, static_cast<uint16_t>(i));
      CHECK(firstDifference(type, run(*table, type, ReduceOp::sum, inputs), inputs[0]) == 65536);
    }
  }
}

TEST_CASE("half types are rounded once, at the end") {
  // 2048 + 1 is 2048 in half precision, but 2048 + 1 + 1 is 2050.
  for (const KernelTable* table : runnableKernels()) {
    Inputs inputs(3, std::vector<std::byte>(2));
    putAt(inputs[0], 0, toHalf(2048));
    putAt(inputs[1], 0, toHalf(1));
    putAt(inputs[2], 0, toHalf(1));
    CHECK(fromHalf(at<uint16_t>(run(*table, ElementType::f16, ReduceOp::sum, inputs), 0)) == 2050);
  }
}

TEST_CASE("the result may take the place of any input") {
  for (size_t target = 0; target < 3; target++) {
    Inputs inputs = makeInputs(3, 4 * 777, 5);
    const auto want = expected(ElementType::i32, ReduceOp::sum, inputs);
    const void* pointers[] = {inputs[0].data(), inputs[1].data(), inputs[2].data()};
    REQUIRE(reduce(ElementType::i32, ReduceOp::sum, pointers, inputs[target].data(), inputs[target].size()));
    CHECK_FALSE(reduce(ElementType::i32, ReduceOp::sum, pointers, inputs[target].data(), 6));
    CHECK(inputs[target] == want);
  }
}
