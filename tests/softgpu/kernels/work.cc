// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softgpu/kernels/work.h"

#include "tests/softgpu/kernels/primitive.h"

namespace softgpu {

namespace {

// In which units NCCL counts chunks.
ptrdiff_t grainBytes(int protocol) {
  return protocol == kLL ? 16 : 512;
}

struct Bits {
  bool argumentIsPointer, shared, registered, oneRankANode;
};

// 2.22 had two bits for registration and none for the network.
Bits readBits(int version, uint32_t word) {
  const uint32_t bits = word >> 24;
  const auto bit = [bits](int number) { return ((bits >> number) & 1) != 0; };
  if (version < 22300) return {bit(0), bit(1) || bit(2), false, false};
  return {bit(0), bit(1), bit(2), bit(6)};
}

// What all algorithms have alike.
CollectiveWork readHead(const Block& block, char* work, size_t elementSize) {
  const Layout& layout = block.layout();
  CollectiveWork read;
  const auto word = field<uint32_t>(work, 0);
  const Bits bits = readBits(block.version(), word);
  read.firstChannel = static_cast<int>(word & 0xff);
  read.lastChannel = static_cast<int>(word >> 8 & 0xff);
  read.root = field<int>(work, layout.root);
  read.input = viewAs<char>(field<void*>(work, layout.sendBuffer));
  read.output = viewAs<char>(field<void*>(work, layout.receiveBuffer));
  read.argument = field<uint64_t>(work, layout.argument);
  if (bits.argumentIsPointer) {
    uint64_t value = 0;
    __builtin_memcpy(&value, view(reinterpret_cast<void*>(read.argument)), elementSize);
    read.argument = value;
  }
  read.buffersRegistered = bits.registered;
  read.buffersShared = bits.shared;
  read.oneRankANode = bits.oneRankANode;
  return read;
}

}  // namespace

CollectiveWork readCollnetWork(const Block& block, char* work, size_t elementSize) {
  CollectiveWork read = readHead(block, work, elementSize);
  const int counts = block.layout().collnetCounts;
  read.count = static_cast<ptrdiff_t>(field<uint64_t>(work, counts));
  read.chunk = static_cast<ptrdiff_t>(field<uint32_t>(work, counts + 8));
  return read;
}

CollectiveWork readWork(const Block& block, char* work, int protocol, size_t elementSize) {
  const Layout& layout = block.layout();
  CollectiveWork read = readHead(block, work, elementSize);
  // First, middle and last channels have parts of their own sizes.
  const auto low = static_cast<ptrdiff_t>(field<uint64_t>(work, layout.counts));
  const auto middle = static_cast<ptrdiff_t>(field<uint64_t>(work, layout.counts + 8));
  const auto high = static_cast<ptrdiff_t>(field<uint64_t>(work, layout.counts + 16));
  const auto grains = field<uint64_t>(work, layout.counts + 24);
  const ptrdiff_t middles = read.lastChannel - read.firstChannel - 1;
  const ptrdiff_t perGrain = grainBytes(protocol) / static_cast<ptrdiff_t>(elementSize);
  const auto chunkOf = [&](int part) {
    return static_cast<ptrdiff_t>(grains >> (21 * part) & 0x1fffff) * perGrain;
  };
  read.count = low + middle * middles + high;
  if (block.channelId() == read.firstChannel) {
    read.offset = 0;
    read.partCount = low;
    read.chunk = chunkOf(0);
  } else if (block.channelId() == read.lastChannel) {
    read.offset = low + middles * middle;
    read.partCount = high;
    read.chunk = chunkOf(2);
  } else {
    read.offset = low + (block.channelId() - read.firstChannel - 1) * middle;
    read.partCount = middle;
    read.chunk = chunkOf(1);
  }
  return read;
}

}  // namespace softgpu
