// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

// The messages of one rank to another, beside the data. A head tells what is to be done; the bytes of a large
// put, and those that answer a get, follow in messages of their own, in the order of their heads. Fixed
// offsets, little-endian; described in docs/one-sided.md. Values; any thread.
namespace weft::rma {

// The tags of the two comms' messages.
constexpr int kHeadTag = 1;
constexpr int kPutTag = 2;     // the bytes of puts
constexpr int kGetTag = 3;     // the bytes that answer gets
constexpr int kPlacedTag = 4;  // the bytes of puts that the fabric writes into the window at once

// The most bytes of one message of data; the smaller one where an end copies them through host memory.
constexpr uint32_t kPieceBytes = uint32_t{4} << 20;
constexpr uint32_t kStagedPieceBytes = uint32_t{256} << 10;

enum class Kind : uint8_t {
  put = 1,   // bytes for a window, a signal, or both
  get,       // asks for bytes of a window
  exchange,  // descriptors of a registration (exchange.h)
  alarm,     // the sender cannot go on with this peer, and says why
  goodbye,   // the sender begins nothing more; sent once for each receive that stands (kHeadsAtOnce)
};

struct Head {
  Kind kind = Kind::put;
  uint8_t signals = 0;  // 1: `addend` is added to a word when all bytes of this and all earlier puts are here
  uint16_t inlined = 0;  // bytes behind this head
  uint32_t context = 0;
  uint32_t window = 0;  // its number; of an exchange: the number of the window that is registered
  uint32_t signalWindow = 0;
  uint64_t sequence = 0;  // of all heads on this connection, from 0 on
  uint64_t bytes = 0;     // of a put or get; of an exchange: descriptors behind this head
  uint64_t offset = 0;    // in the window; of an exchange: the rank of the first descriptor
  uint64_t signalOffset = 0;
  uint64_t addend = 0;
  uint32_t piece = kPieceBytes;  // of a put or get: the most bytes of one message of its data
  uint32_t placed = 0;           // of a put: 1: its bytes have kPlacedTag, and know their place
};
constexpr size_t kHeadBytes = 64;
static_assert(sizeof(Head) == kHeadBytes && std::is_trivially_copyable_v<Head>);

constexpr size_t kSlotBytes = 256;  // of a head with all that is behind it
constexpr size_t kInlineBytes = kSlotBytes - kHeadBytes;
constexpr size_t kHeadsAtOnce = 16;  // heads under way, and receives that stand for them

// A rank's part of a registration.
struct Descriptor {
  uint64_t length = 0;
  uint8_t registered = 0;  // 0: the rank could not
  uint8_t inlines = 0;     // 1: bytes behind a head may go there
  uint8_t staged = 0;      // 1: it is a GPU's, and the fabric does not reach it
  uint8_t unused[5] = {};
};
static_assert(sizeof(Descriptor) == 16 && std::is_trivially_copyable_v<Descriptor>);
constexpr size_t kDescriptorsAtOnce = kInlineBytes / sizeof(Descriptor);

// False: the bytes are no head of ours, or not as many as it says.
inline bool readHead(std::span<const std::byte> message, Head* out) {
  if (message.size() < kHeadBytes) return false;
  std::memcpy(static_cast<void*>(out), message.data(), kHeadBytes);
  const auto kind = static_cast<uint8_t>(out->kind);
  return kind >= static_cast<uint8_t>(Kind::put) && kind <= static_cast<uint8_t>(Kind::goodbye) &&
         out->signals <= 1 && out->placed <= 1 && out->inlined == message.size() - kHeadBytes &&
         (out->piece == kPieceBytes || out->piece == kStagedPieceBytes);
}

}  // namespace weft::rma
