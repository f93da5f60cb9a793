// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softgpu/kernels/floats.h"

#include <cmath>
#include <limits>

namespace softgpu {

namespace {

// The largest finite magnitude as bits without sign. Without infinities (e4m3) the last pattern is NaN.
template <int E, int M, bool Infinity>
constexpr unsigned largest() {
  constexpr unsigned kAll = (1U << (E + M)) - 1;
  return Infinity ? (((1U << E) - 1) << M) - 1 : kAll - 1;
}

}  // namespace

template <int E, int M, int Bias, bool Infinity>
float SmallFloat<E, M, Bias, Infinity>::decode(Bits bits) {
  const bool negative = (bits >> (E + M)) & 1U;
  const unsigned magnitude = bits & ((1U << (E + M)) - 1);
  const int exponent = static_cast<int>(magnitude >> M);
  const auto mantissa = static_cast<float>(magnitude & ((1U << M) - 1));
  constexpr float kUnit = static_cast<float>(1U << M);
  float value = exponent == 0 ? std::ldexp(mantissa / kUnit, 1 - Bias)
                              : std::ldexp(1.0F + mantissa / kUnit, exponent - Bias);
  if (magnitude > largest<E, M, Infinity>()) {
    const bool infinite = Infinity && mantissa == 0.0F;
    value = infinite ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  }
  return negative ? -value : value;
}

// Rounds to nearest even. Types with infinities overflow to them, except 8-bit ones, which stay at their
// largest value as the GPU's saturating conversion does.
template <int E, int M, int Bias, bool Infinity>
typename SmallFloat<E, M, Bias, Infinity>::Bits SmallFloat<E, M, Bias, Infinity>::encode(float value) {
  constexpr unsigned kSign = 1U << (E + M);
  const unsigned sign = std::signbit(value) ? kSign : 0;
  if (std::isnan(value)) return static_cast<Bits>(sign | (kSign - 1));
  const float magnitude = std::fabs(value);
  if (magnitude == 0.0F) return static_cast<Bits>(sign);
  constexpr unsigned kLargest = largest<E, M, Infinity>();
  constexpr bool kSaturates = E + M < 8;
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  const int least = 1 - Bias;
  const int scale = (exponent - 1 < least ? least : exponent - 1) - M;
  // nearbyint rounds to even in the default mode; what it rounds is exact in float's wider mantissa.
  const float units = std::isinf(magnitude) ? magnitude : std::nearbyint(std::ldexp(magnitude, -scale));
  unsigned bits = kLargest + 1;
  if (units < static_cast<float>(2U << M)) {
    const auto whole = static_cast<unsigned>(units);
    // A normal number's units have the hidden one, which adds one to the exponent field that is one too
    // small.
    bits = (static_cast<unsigned>(scale + M - least) << M) + whole;
  } else if (!std::isinf(units)) {
    bits = (static_cast<unsigned>(scale + M - least) << M) + (2U << M);
  }
  if (bits > kLargest) bits = kSaturates ? kLargest : kLargest + 1;
  return static_cast<Bits>(sign | bits);
}

template struct SmallFloat<5, 10, 15, true>;
template struct SmallFloat<8, 7, 127, true>;
template struct SmallFloat<4, 3, 7, false>;
template struct SmallFloat<5, 2, 15, true>;

}  // namespace softgpu
