// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

// CRC-32C (Castagnoli), the sum of iSCSI and ext4: by the processor's instruction where it has one, else by
// tables. Any thread.
namespace weft {

uint32_t crc32c(std::span<const std::byte> bytes);

// Of each part of `bytes` a sum of its own: all parts but the last have `part` bytes, which is above 0. As
// many sums as there are parts, none for no bytes. Several at a time: the instruction's result is late.
void crc32cOfParts(std::span<const std::byte> bytes, size_t part, std::span<uint32_t> sums);

// The two ways, for tests; null: this processor has no such instruction.
using CrcOfParts = void (*)(std::span<const std::byte> bytes, size_t part, std::span<uint32_t> sums);
CrcOfParts crcByTables();
CrcOfParts crcByInstruction();

}  // namespace weft
