// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/printable.h"

#include <algorithm>
#include <array>
#include <cstdint>

// Escapes for terminals and logs, quotes for shells.
namespace weft {

namespace {

// A letter of a text: how many bytes it has, 0 where they are no UTF-8, and its number.
struct Letter {
  size_t bytes = 0;
  uint32_t number = 0;
};

uint8_t byteAt(std::string_view text, size_t at) {
  return static_cast<uint8_t>(text[at]);
}

// The table of well-formed sequences of the Unicode standard: no overlong form, no surrogate, no number that
// no letter has.
Letter letterAt(std::string_view text) {
  const uint8_t first = byteAt(text, 0);
  if (first < 0x80) return {1, first};
  const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 0;
  if (bytes == 0 || first > 0xf4 || text.size() < bytes) return {};
  uint32_t number = first & (0xffU >> (bytes + 1));
  for (size_t i = 1; i < bytes; i++) {
    if ((byteAt(text, i) & 0xc0) != 0x80) return {};
    number = number << 6 | (byteAt(text, i) & 0x3fU);
  }
  constexpr std::array<uint32_t, 5> kLeast{0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = number >= 0xd800 && number < 0xe000;
  return number < kLeast[bytes] || surrogate || number > 0x10ffff ? Letter{} : Letter{bytes, number};
}

// U+2028 and U+2029 break lines, the others (Unicode, "bidirectional formatting") turn what follows around.
bool isControl(uint32_t number) {
  if (number < 0x20 || (number >= 0x7f && number < 0xa0)) return true;
  return number == 0x61c || (number >= 0x200e && number <= 0x200f) ||
         (number >= 0x2028 && number <= 0x202e) || (number >= 0x2066 && number <= 0x2069);
}

void escape(std::string_view bytes, std::string* to) {
  constexpr const char* kDigits = "0123456789abcdef";
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    *to += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
  }
}

}  // namespace

std::string printable(std::string_view text, Breaks breaks) {
  std::string shown;
  shown.reserve(text.size());
  while (!text.empty()) {
    const Letter letter = letterAt(text);
    const std::string_view bytes = text.substr(0, std::max<size_t>(letter.bytes, 1));
    const bool isBreak = letter.number == '\n' || letter.number == '\t';
    const bool stays = letter.bytes > 0 && (isBreak ? breaks == Breaks::kept : !isControl(letter.number));
    if (stays)
      shown += bytes;
    else
      escape(bytes, &shown);
    text.remove_prefix(bytes.size());
  }
  return shown;
}

std::string shellQuoted(std::string_view word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string_view::npos) return std::string(word);
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace weft
