// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <bit>
#include <cstdint>

// The two 16-bit floating-point types of NCCL, as storage: arithmetic converts to float, computes there and
// rounds to nearest even, which is what a GPU's own instructions give. By bits, because not every compiler
// has types for them. Values; any thread.
namespace weft::perf {

// IEEE 754 binary16: 5 bits of exponent, 10 of fraction.
class Half {
 public:
  Half() = default;
  explicit Half(float value) : bits_(fromFloat(std::bit_cast<uint32_t>(value))) {}
  explicit operator float() const {
    const uint32_t sign = uint32_t{bits_ & 0x8000u} << 16;
    const uint32_t magnitude = bits_ & 0x7fffu;
    if (magnitude >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
    // The exponent counts from another number: one multiplication moves it, of subnormals too.
    const float moved = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(moved));
  }

 private:
  static uint16_t fromFloat(uint32_t x) {
    const uint32_t sign = x >> 16 & 0x8000u;
    uint32_t magnitude = x & 0x7fffffffu;
    if (magnitude >= 0x47800000u)
      return static_cast<uint16_t>(sign | (magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u));
    if (magnitude < 0x38800000u) {  // a subnormal: the addition rounds its bits to the end of the word
      const float rounded = std::bit_cast<float>(magnitude) + 0.5f;
      return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(rounded) - 0x3f000000u));
    }
    magnitude += 0xc8000fffu + (magnitude >> 13 & 1u);  // exponent moved, half of the last place added
    return static_cast<uint16_t>(sign | magnitude >> 13);
  }

  uint16_t bits_ = 0;
};

// The upper half of a float.
class BFloat16 {
 public:
  BFloat16() = default;
  explicit BFloat16(float value) : bits_(fromFloat(std::bit_cast<uint32_t>(value))) {}
  explicit operator float() const { return std::bit_cast<float>(uint32_t{bits_} << 16); }

 private:
  static uint16_t fromFloat(uint32_t x) {
    if ((x & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(x >> 16 | 0x40u);  // stays not-a-number
    return static_cast<uint16_t>((x + 0x7fffu + (x >> 16 & 1u)) >> 16);
  }

  uint16_t bits_ = 0;
};

}  // namespace weft::perf
