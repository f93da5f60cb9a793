// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>
#include <unistd.h>

#include "src/base/bytes.h"

// How the two-process tests and their other process exchange bytes over pipes: hexadecimal, a line each.
// Blocking; the alarm of each end bounds the wait.
namespace weft::test {

inline void writeLine(int fd, std::span<const std::byte> bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string line;
  for (const std::byte b : bytes) {
    line.push_back(kDigits[std::to_integer<unsigned>(b) >> 4]);
    line.push_back(kDigits[std::to_integer<unsigned>(b) & 15]);
  }
  line.push_back('\n');
  (void)!::write(fd, line.data(), line.size());
}

inline Bytes readLine(int fd) {
  std::string line;
  char c = 0;
  while (::read(fd, &c, 1) == 1 && c != '\n') line.push_back(c);
  Bytes bytes;
  for (size_t i = 0; i + 1 < line.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(line.substr(i, 2), nullptr, 16)));
  return bytes;
}

}  // namespace weft::test
