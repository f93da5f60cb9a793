// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

// SipHash-2-4 with 128-bit output (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012): a
// sum of handles against damage. Proofs and keys are made in crypto/. Pure; any thread.
namespace weft {

using Key128 = std::array<std::byte, 16>;
using Tag128 = std::array<std::byte, 16>;

Tag128 sipHash128(const Key128& key, std::span<const std::byte> message);

// A comparison whose time does not tell how many bytes are equal.
bool equalSecret(const Tag128& a, const Tag128& b);

}  // namespace weft
