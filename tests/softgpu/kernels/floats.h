// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <type_traits>

namespace softgpu {

// Floating-point types of 8 and 16 bits, as bits. Reductions compute in float and round to nearest even.
template <int Exponent, int Mantissa, int Bias, bool HasInfinity>
struct SmallFloat {
  using Bits = std::conditional_t<(Exponent + Mantissa < 8), uint8_t, uint16_t>;
  Bits bits;

  SmallFloat() = default;
  explicit SmallFloat(float value) : bits(encode(value)) {}
  explicit operator float() const { return decode(bits); }

  static float decode(Bits bits);
  static Bits encode(float value);
};

using Half = SmallFloat<5, 10, 15, true>;
using BFloat16 = SmallFloat<8, 7, 127, true>;
using Float8E4M3 = SmallFloat<4, 3, 7, false>;
using Float8E5M2 = SmallFloat<5, 2, 15, true>;

}  // namespace softgpu
