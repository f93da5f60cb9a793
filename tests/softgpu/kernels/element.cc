// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softgpu/kernels/element.h"

#include <cstring>
#include <functional>
#include <map>
#include <type_traits>

#include "tests/softgpu/kernels/floats.h"
#include "tests/softgpu/ownership.h"

namespace softgpu {

namespace {

// Elements in memory need not be aligned to their size.
template <typename T>
T load(const void* from, size_t index) {
  T value;
  std::memcpy(static_cast<void*>(&value), static_cast<const char*>(from) + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void store(void* to, size_t index, T value) {
  std::memcpy(static_cast<char*>(to) + index * sizeof(T), &value, sizeof(T));
}

template <typename T>
T fromArgument(uint64_t argument) {
  T value;
  std::memcpy(static_cast<void*>(&value), &argument, sizeof(T));
  return value;
}

template <typename T>
constexpr bool kIsSmallFloat = !std::is_arithmetic_v<T>;

// In what a type is computed: itself, or float for small ones. Small integers are promoted and cut off again.
template <typename T>
using Wide = std::conditional_t<kIsSmallFloat<T>, float, T>;

struct Sum {
  explicit Sum(uint64_t) {}
  template <typename W>
  W combine(W a, W b) const {
    return static_cast<W>(a + b);
  }
};

struct Product {
  explicit Product(uint64_t) {}
  template <typename W>
  W combine(W a, W b) const {
    if constexpr (std::is_integral_v<W>)
      return static_cast<W>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    return static_cast<W>(a * b);
  }
};

// For integers the argument flips the bits that make the comparison signed or the other way round.
struct MinMax {
  explicit MinMax(uint64_t argument) : flip(argument) {}
  template <typename W>
  W combine(W a, W b) const {
    if constexpr (std::is_integral_v<W>) {
      const auto mask = static_cast<W>(flip);
      return static_cast<W>(a ^ mask) < static_cast<W>(b ^ mask) ? a : b;
    } else {
      const bool min = (flip & 1) == 0;
      if (a != a || b != b) return a != a ? a : b;
      return (a < b) == min ? a : b;
    }
  }
  uint64_t flip;
};

template <typename T, typename Op>
class TypedReduction : public Reduction {
 public:
  explicit TypedReduction(uint64_t argument) : op_(argument) {}
  size_t size() const override { return sizeof(T); }
  void reduce(void* to, const void* a, const void* b, size_t count) const override {
    for (size_t i = 0; i < count; ++i) {
      const auto x = static_cast<Wide<T>>(load<T>(a, i)), y = static_cast<Wide<T>>(load<T>(b, i));
      store(to, i, static_cast<T>(op_.combine(x, y)));
    }
  }
  void before(void* to, const void* from, size_t count) const override {
    std::memmove(to, from, count * sizeof(T));
  }
  void after(void*, size_t) const override {}
  bool hasBefore() const override { return false; }
  bool hasAfter() const override { return false; }

 private:
  Op op_;
};

// The own input is multiplied first: averages of floating-point numbers, and users' own reductions.
template <typename T>
class PreMulSum : public TypedReduction<T, Sum> {
 public:
  explicit PreMulSum(uint64_t argument)
      : TypedReduction<T, Sum>(argument), factor_(fromArgument<T>(argument)) {}
  void before(void* to, const void* from, size_t count) const override {
    const auto factor = static_cast<Wide<T>>(factor_);
    for (size_t i = 0; i < count; ++i) {
      store(to, i, static_cast<T>(static_cast<Wide<T>>(static_cast<Wide<T>>(load<T>(from, i)) * factor)));
    }
  }
  bool hasBefore() const override { return true; }

 private:
  T factor_;
};

// The sum is divided at the end: averages of integers. The lowest bit of the argument says that they are
// signed.
template <typename T>
class SumPostDiv : public TypedReduction<T, Sum> {
 public:
  explicit SumPostDiv(uint64_t argument)
      : TypedReduction<T, Sum>(argument),
        signed_((argument & 1) != 0),
        divisor_(static_cast<int64_t>(argument >> 1)) {}
  void after(void* to, size_t count) const override {
    for (size_t i = 0; i < count; ++i) {
      const T value = load<T>(to, i);
      const T divided = signed_
                            ? static_cast<T>(static_cast<std::make_signed_t<T>>(value) / divisor_)
                            : static_cast<T>(static_cast<uint64_t>(value) / static_cast<uint64_t>(divisor_));
      store(to, i, divided);
    }
  }
  bool hasAfter() const override { return true; }

 private:
  bool signed_;
  int64_t divisor_;
};

template <typename T>
std::unique_ptr<Reduction> makeTyped(const std::string& name, uint64_t argument) {
  if (name == "Sum") return std::make_unique<TypedReduction<T, Sum>>(argument);
  if (name == "Prod") return std::make_unique<TypedReduction<T, Product>>(argument);
  if (name == "MinMax") return std::make_unique<TypedReduction<T, MinMax>>(argument);
  if (name == "PreMulSum") return std::make_unique<PreMulSum<T>>(argument);
  if constexpr (std::is_integral_v<T>) {
    if (name == "SumPostDiv" && argument >> 1 != 0) return std::make_unique<SumPostDiv<T>>(argument);
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<Reduction> makeReduction(const std::string& reduction, const std::string& type,
                                         uint64_t argument) {
  using Maker = std::unique_ptr<Reduction> (*)(const std::string&, uint64_t);
  static const auto* const kMakers = &immortal<std::map<std::string, Maker>>(
      std::map<std::string, Maker>{{"", makeTyped<uint8_t>},
                                   {"i8", makeTyped<uint8_t>},
                                   {"u8", makeTyped<uint8_t>},
                                   {"i32", makeTyped<uint32_t>},
                                   {"u32", makeTyped<uint32_t>},
                                   {"i64", makeTyped<uint64_t>},
                                   {"u64", makeTyped<uint64_t>},
                                   {"f16", makeTyped<Half>},
                                   {"f32", makeTyped<float>},
                                   {"f64", makeTyped<double>},
                                   {"bf16", makeTyped<BFloat16>},
                                   {"f8e4m3", makeTyped<Float8E4M3>},
                                   {"f8e5m2", makeTyped<Float8E5M2>}});
  const auto found = kMakers->find(type);
  return found == kMakers->end() ? nullptr : found->second(type.empty() ? "Sum" : reduction, argument);
}

}  // namespace softgpu
