// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace weft {

// The whole text as a number, or nothing: no blanks, no sign but '-', not too large. It uses std::from_chars,
// as glibc 2.38 gave strtol and its kin new names, which a library built there would need everywhere. Any
// thread.
template <class Number>
std::optional<Number> parseNumber(std::string_view text, int base = 10) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Decimal digits only, from 0 to `most`, into any type that a number converts to. False: the text does not
// fit, and *out is unchanged. The options of providers are written in such numbers.
template <class Number>
bool readNumber(std::string_view text, uint64_t most, Number* out) {
  if (text.empty() || text.find_first_not_of("0123456789") != std::string_view::npos) return false;
  const auto value = parseNumber<uint64_t>(text);
  if (!value || *value > most) return false;
  *out = static_cast<Number>(*value);
  return true;
}

}  // namespace weft
