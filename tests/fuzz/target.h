// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

// What each fuzz target defines. The first function is libFuzzer's own entry, so that a target links with
// libFuzzer's driver or with ours (driver.cc) without a change. A target crashes on what must not be.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace weft::fuzz {

using Input = std::vector<std::byte>;

// Well-formed inputs: where mutation starts from.
std::vector<Input> seeds();

// Ends the process where a sanitizer or the driver sees it.
inline void demand(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "fuzz: not so: %s\n", what);
  std::abort();
}

inline std::span<const std::byte> bytesOf(const uint8_t* data, size_t size) {
  return std::as_bytes(std::span(data, size));
}

// One byte says which decoder, the others are for it: decoders of one kind share a target and its corpus.
template <class Bytes>
Input choose(uint8_t which, const Bytes& body) {
  Input input(1 + std::size(body));
  input[0] = std::byte{which};
  std::copy(std::begin(body), std::end(body), input.begin() + 1);
  return input;
}

}  // namespace weft::fuzz
