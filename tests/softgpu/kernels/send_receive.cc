// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <cstring>
#include <functional>
#include <thread>

#include "tests/softgpu/kernels/primitive.h"
#include "tests/softgpu/kernels/work.h"

namespace softgpu {

namespace {

constexpr ptrdiff_t kNetworkChunk = 1024L * 1024 * 1024;
constexpr size_t kPartAlignment = 4096;

// What this channel does of one send or receive.
struct Half {
  bool here = false;
  char* address = nullptr;
  size_t bytes = 0;
  int rank = 0;
  bool ll = false, registered = false;
  ptrdiff_t chunk = 0;
};

unsigned reversed(unsigned value, unsigned bits) {
  unsigned result = 0;
  for (unsigned bit = 0; bit < bits; ++bit) result |= (value >> bit & 1) << (bits - 1 - bit);
  return result;
}

// Which part of a transfer a channel carries. Until 2.27 neighbours in the list were far apart.
unsigned partOf(const Block& block, unsigned channels, unsigned base) {
  const unsigned delta = (static_cast<unsigned>(block.channelId()) - base) & (channels - 1);
  if (block.version() >= 22800) return delta;
  return reversed(delta, static_cast<unsigned>(__builtin_popcount(channels - 1)));
}

// A number of a byte: five bits of exponent, three of mantissa.
ptrdiff_t decodeSize(uint8_t byte) {
  constexpr int kMantissa = 3;
  const int exponent = byte >> kMantissa;
  const int mantissa = byte & ((1 << kMantissa) - 1);
  const ptrdiff_t whole = (exponent != 0 ? 1 << kMantissa : 0) + mantissa;
  return exponent > 1 ? whole << (exponent - 1) : whole;
}

Half readHalf(const Block& block, char* work, bool sending) {
  const Layout& layout = block.layout();
  const auto* const counts = reinterpret_cast<const uint8_t*>(work + layout.p2pChannels);
  const unsigned parts = counts[sending ? 2 : 3];
  const unsigned part = partOf(block, counts[0], counts[1]);
  Half half;
  half.here = part < parts;
  if (!half.here) return half;
  const size_t whole = field<size_t>(work, sending ? layout.sendBytes : layout.receiveBytes);
  const size_t each = ((whole + parts - 1) / parts + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
  const size_t begin = std::min(part * each, whole);
  half.bytes = std::min((part + 1) * each, whole) - begin;
  half.address = viewAs<char>(field<void*>(work, sending ? layout.sendAddress : layout.receiveAddress));
  if (half.address != nullptr) half.address += begin;
  half.rank = field<int>(work, sending ? layout.sendRank : layout.receiveRank);
  const auto* const sizes = reinterpret_cast<const uint8_t*>(work + layout.chunkSizes);
  const uint8_t bits = sizes[2];
  half.ll = (bits >> (sending ? 0 : 1) & 1) != 0;
  half.registered = (bits >> (sending ? 2 : 3) & 1) != 0;
  half.chunk = half.registered ? kNetworkChunk : decodeSize(sizes[sending ? 0 : 1]);
  return half;
}

void playHalf(Block& block, const Reduction& bytes, const Half& half, bool sending) {
  Ends ends;
  (sending ? ends.sendTo : ends.receiveFrom) = {half.rank};
  ends.index = 1;
  ends.registered = half.registered;
  ends.stepBytes = half.registered ? static_cast<int>(kNetworkChunk) : block.p2pChunk();
  const auto primitive = makePrimitive(half.ll ? kLL : kSimple, block, bytes, ends);
  // A transfer of no bytes is a step too.
  size_t done = 0;
  do {
    Operation operation;
    operation.send = sending;
    operation.receive = !sending;
    operation.count = static_cast<ptrdiff_t>(std::min(static_cast<size_t>(half.chunk), half.bytes - done));
    if (sending) operation.source = half.address + done;
    if (!sending) operation.target = half.address + done;
    primitive->run(operation);
    done += static_cast<size_t>(operation.count);
  } while (done < half.bytes);
  primitive->finish();
}

}  // namespace

void playSendReceive(Block& block, char* const* works, size_t count) {
  const auto bytes = makeReduction("", "", 0);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < count; ++i) {
    const Half out = readHalf(block, works[i], true), in = readHalf(block, works[i], false);
    if (out.here && out.rank == block.rank()) {
      if (in.here && in.address != out.address) std::memmove(in.address, out.address, out.bytes);
      continue;
    }
    if (out.here) threads.emplace_back([&block, &bytes, out] { playHalf(block, *bytes, out, true); });
    if (in.here) threads.emplace_back([&block, &bytes, in] { playHalf(block, *bytes, in, false); });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace softgpu
