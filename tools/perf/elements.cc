// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/perf/elements.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include <fmt/format.h>

#include "tools/perf/small_floats.h"

namespace weft::perf {

namespace {

template <class T>
concept SmallFloat = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;
template <class T>
concept Floating = std::is_floating_point_v<T> || SmallFloat<T>;

// The type that T is computed in. Integers wrap, which only unsigned arithmetic of at least int's width may
// do.
template <class T>
struct WideOf {
  using type = std::conditional_t<sizeof(T) <= 4, uint32_t, uint64_t>;
};
template <class T>
requires std::is_floating_point_v<T>
struct WideOf<T> {
  using type = T;
};
template <SmallFloat T>
struct WideOf<T> {
  using type = float;
};
template <class T>
using Wide = typename WideOf<T>::type;

template <class T, class F>
void apply(std::byte* target, const std::byte* a, const std::byte* b, size_t count, F function) {
  auto* out = reinterpret_cast<T*>(target);
  const auto* left = reinterpret_cast<const T*>(a);
  const auto* right = reinterpret_cast<const T*>(b);
  for (size_t i = 0; i < count; ++i) out[i] = function(left[i], right[i]);
}

template <class T>
bool lessThan(T x, T y) {
  if constexpr (SmallFloat<T>)
    return static_cast<float>(x) < static_cast<float>(y);
  else
    return x < y;
}

template <class T>
void reduce(RedOp op, std::byte* target, const std::byte* a, const std::byte* b, size_t count) {
  using W = Wide<T>;
  switch (op) {
    case RedOp::sum:
      return apply<T>(target, a, b, count,
                      [](T x, T y) { return static_cast<T>(static_cast<W>(x) + static_cast<W>(y)); });
    case RedOp::prod:
      return apply<T>(target, a, b, count,
                      [](T x, T y) { return static_cast<T>(static_cast<W>(x) * static_cast<W>(y)); });
    case RedOp::max:
      return apply<T>(target, a, b, count, [](T x, T y) { return lessThan(x, y) ? y : x; });
    case RedOp::min:
      return apply<T>(target, a, b, count, [](T x, T y) { return lessThan(y, x) ? y : x; });
  }
}

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// How far sums and products of T stay exact.
struct Exact {
  int sum;        // whole numbers up to this
  int exponents;  // powers of two from minus this to this
};
template <class T>
constexpr Exact kExact = {1 << 24, 126};
template <>
constexpr Exact kExact<Half> = {2048, 14};
template <>
constexpr Exact kExact<BFloat16> = {256, 126};

constexpr int kLargest = 64;

// Among so many ranks not every one can have a value that grows the result and keep it exact: then they take
// turns, element by element.
bool hasTurn(const Contributor& who, int limit, size_t index) {
  const int turns = (who.size + limit - 1) / limit;
  return (index + static_cast<size_t>(who.rank)) % static_cast<size_t>(turns) == 0;
}

template <class T>
T fromInt(int value) {
  if constexpr (SmallFloat<T>)
    return T(static_cast<float>(value));
  else
    return static_cast<T>(value);
}

template <class T>
T smallNumber(const Contributor& who, size_t index, uint64_t random) {
  const int limit = kExact<T>.sum;
  const int most = std::clamp(limit / who.size, 1, kLargest);
  const int span = 2 * most;
  const int value = static_cast<int>(random % static_cast<uint64_t>(span)) - most;
  return fromInt<T>(hasTurn(who, limit, index) ? value : 0);
}

// Powers of two and signs; as integers odd numbers, since a wrapped product of even ones is soon 0.
template <class T>
T factor(const Contributor& who, size_t index, uint64_t random) {
  static constexpr std::array<float, 8> kFactors = {1, 2, 1, 0.5, -1, 1, -2, -0.5};
  if constexpr (!Floating<T>) return static_cast<T>(2 * static_cast<int>(random & 7) - 7);
  if (!hasTurn(who, kExact<T>.exponents, index)) return static_cast<T>((random & 1) != 0 ? 1.0f : -1.0f);
  return static_cast<T>(kFactors[random & 7]);
}

template <class T>
void pattern(RedOp op, std::span<std::byte> target, const Contributor& who, uint64_t iteration) {
  const uint64_t seed = mix(iteration * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(who.rank) + 1);
  auto* out = reinterpret_cast<T*>(target.data());
  for (size_t i = 0; i < target.size() / sizeof(T); ++i) {
    const uint64_t random = mix(seed + i);
    out[i] = op == RedOp::prod ? factor<T>(who, i, random) : smallNumber<T>(who, i, random);
  }
}

template <class T>
std::string text(const std::byte* element) {
  T value;
  std::memcpy(&value, element, sizeof(value));
  if constexpr (SmallFloat<T>)
    return fmt::format("{}", static_cast<float>(value));
  else if constexpr (sizeof(T) == 1)
    return fmt::format("{}", int{value});
  else
    return fmt::format("{}", value);
}

template <class T>
constexpr ElementType makeType(const char* name, const char* alias) {
  return {name, alias, sizeof(T), &reduce<T>, &pattern<T>, &text<T>};
}
template <class T>
constexpr ElementType makeType(const char* name) {
  return makeType<T>(name, name);
}

constexpr std::array kTypes = {makeType<float>("float", "float32"),
                               makeType<Half>("half", "float16"),
                               makeType<BFloat16>("bfloat16"),
                               makeType<double>("double", "float64"),
                               makeType<int8_t>("int8"),
                               makeType<uint8_t>("uint8"),
                               makeType<int32_t>("int32"),
                               makeType<uint32_t>("uint32"),
                               makeType<int64_t>("int64"),
                               makeType<uint64_t>("uint64")};

constexpr std::array kRedOps = {RedOp::sum, RedOp::prod, RedOp::max, RedOp::min};

}  // namespace

const char* redOpName(RedOp op) {
  static constexpr std::array<const char*, 4> kNames = {"sum", "prod", "max", "min"};
  return kNames[static_cast<size_t>(op)];
}

Result<std::vector<const ElementType*>> parseTypes(const std::string& name) {
  std::vector<const ElementType*> types;
  std::string known;
  for (const ElementType& type : kTypes) {
    if (name == "all" || name == type.name || name == type.alias) types.push_back(&type);
    known += std::string(" ") + type.name;
  }
  if (types.empty())
    return Error(Code::invalidArgument, "command line", "-d " + name + ": known are" + known + " all");
  return types;
}

Result<std::vector<RedOp>> parseRedOps(const std::string& name) {
  std::vector<RedOp> ops;
  for (const RedOp op : kRedOps)
    if (name == "all" || name == redOpName(op)) ops.push_back(op);
  if (ops.empty())
    return Error(Code::invalidArgument, "command line", "-o " + name + ": known are sum prod max min all");
  return ops;
}

Pattern Pattern::ofRank(const ElementType& type, RedOp op, const Contributor& who, uint64_t iteration,
                        size_t elements) {
  Pattern pattern(type, elements);
  type.pattern(op, pattern.period_, who, iteration);
  return pattern;
}

Pattern Pattern::reduced(const ElementType& type, RedOp op, int size, uint64_t iteration, size_t elements) {
  Pattern result = ofRank(type, op, {0, size}, iteration, elements);
  for (int rank = 1; rank < size; ++rank) {
    const Pattern next = ofRank(type, op, {rank, size}, iteration, elements);
    type.reduce(op, result.period_.data(), result.period_.data(), next.period_.data(),
                next.period_.size() / type.bytes);
  }
  return result;
}

void Pattern::fill(std::span<std::byte> target) const {
  while (!target.empty()) {
    const size_t length = std::min(target.size(), period_.size());
    std::memcpy(target.data(), period_.data(), length);
    target = target.subspan(length);
  }
}

uint64_t Pattern::countInBlock(std::span<const std::byte> data, const std::byte* expected) const {
  if (std::memcmp(data.data(), expected, data.size()) == 0) return 0;
  uint64_t wrong = 0;
  for (size_t at = 0; at < data.size(); at += type_->bytes)
    wrong += std::memcmp(data.data() + at, expected + at, type_->bytes) != 0 ? 1 : 0;
  return wrong;
}

uint64_t Pattern::countWrong(std::span<const std::byte> data, size_t first) const {
  uint64_t wrong = 0;
  size_t at = first % kPatternElements * type_->bytes;
  while (!data.empty()) {
    const size_t length = std::min(data.size(), period_.size() - at);
    wrong += countInBlock(data.first(length), period_.data() + at);
    data = data.subspan(length);
    at = 0;
  }
  return wrong;
}

std::string Pattern::describeFirstWrong(std::span<const std::byte> data, size_t first) const {
  const size_t begin = first % kPatternElements * type_->bytes;
  for (size_t at = 0; at < data.size(); at += type_->bytes) {
    const std::byte* expected = period_.data() + (begin + at) % period_.size();
    if (std::memcmp(data.data() + at, expected, type_->bytes) == 0) continue;
    return fmt::format("element {} is {} instead of {}", at / type_->bytes, type_->text(data.data() + at),
                       type_->text(expected));
  }
  return "no element is wrong";
}

}  // namespace weft::perf
