// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

// The bytes of a replayed message: both ends compute them from who sends it and which one it is. Pure; any
// thread.
namespace weft::replay {

constexpr uint64_t mixed(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// The message with this number among those of its tag, on a connection.
constexpr uint64_t seedOf(uint64_t connection, int64_t tag, uint64_t number) {
  return mixed(mixed(connection + 0x9e3779b97f4a7c15u) ^ mixed(static_cast<uint64_t>(tag) + 1) ^
               (number << 1));
}

constexpr uint64_t wordOf(uint64_t seed, size_t index) {
  return (seed + index * 0x9e3779b97f4a7c15u) ^ ((seed + index) >> 32);
}

inline void fill(uint64_t seed, std::span<std::byte> bytes) {
  for (size_t from = 0; from < bytes.size(); from += 8) {
    const uint64_t word = wordOf(seed, from / 8);
    std::memcpy(bytes.data() + from, &word, bytes.size() - from < 8 ? bytes.size() - from : 8);
  }
}

// The position of the first byte that is wrong.
inline std::optional<size_t> firstWrong(uint64_t seed, std::span<const std::byte> bytes) {
  for (size_t from = 0; from < bytes.size(); from += 8) {
    const uint64_t word = wordOf(seed, from / 8);
    const size_t length = bytes.size() - from < 8 ? bytes.size() - from : 8;
    if (std::memcmp(bytes.data() + from, &word, length) == 0) continue;
    size_t at = from;
    while (bytes[at] == reinterpret_cast<const std::byte*>(&word)[at - from]) ++at;
    return at;
  }
  return std::nullopt;
}

// The position of the first byte that is of none of the messages with these seeds. Messages to one place
// between which nobody waits land in any order, byte-wise, so each byte may be of another one.
inline std::optional<size_t> firstOfNone(std::span<const uint64_t> seeds, std::span<const std::byte> bytes) {
  if (seeds.size() == 1) return firstWrong(seeds.front(), bytes);
  size_t likely = 0;
  for (size_t from = 0; from < bytes.size(); from += 8) {
    const std::span<const std::byte> part = bytes.subspan(from, std::min<size_t>(8, bytes.size() - from));
    const auto is = [&](uint64_t seed, size_t at, size_t length) {
      const uint64_t word = wordOf(seed, from / 8);
      return std::memcmp(part.data() + at, reinterpret_cast<const std::byte*>(&word) + at, length) == 0;
    };
    if (is(seeds[likely], 0, part.size())) continue;
    for (size_t at = 0; at < part.size(); ++at) {
      size_t tried = 0;
      for (; tried < seeds.size() && !is(seeds[likely], at, 1); ++tried) likely = (likely + 1) % seeds.size();
      if (tried == seeds.size()) return from + at;
    }
  }
  return std::nullopt;
}

}  // namespace weft::replay
