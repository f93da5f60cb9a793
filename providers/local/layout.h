// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "src/base/siphash.h"

// The memory that two processes of a host share. Each end of a lane owns an inbox: the peer puts frames into
// it, and the owner lands them. So a lane has two inboxes. In each, every word has a single writer, the owner
// or the peer, as said below. Both ends are built from this header, and kVersion tells a different layout. A
// peer may write anything here at any time: so the owner copies what it takes out, once, and checks the copy.
namespace weft::local {

constexpr size_t kMaxWriteBytes = size_t{1} << 30;

constexpr uint64_t kMagic = 0x316c636c74666577;  // "weftlcl1"
constexpr uint32_t kVersion = 5;

constexpr uint32_t kSlots = 256;           // a power of two
constexpr size_t kInlineBytes = 80;        // bytes in the frame itself
constexpr size_t kRingBytes = 256 << 10;   // for all other bytes
constexpr size_t kMostInFrame = 16 << 10;  // a larger write goes in pieces of this size
constexpr size_t kMostShared = 16 << 20;   // the same for GPU memory that is in neither frame nor ring
constexpr size_t kReplyBytes = 16 << 10;   // bytes that a read brings at a time
constexpr size_t kLine = 128;              // two cache lines: processors fetch them in pairs
// Writes from this size on go past the caches, into the ring and out of it. A line that one processor has
// written is slow to get for another, and a line that is fetched only to be overwritten displaces others.
constexpr size_t kLarge = 64 << 10;

using Nonce = Tag128;

// How far an end has come with its peer. Each end says it in its own inbox.
enum class Word : uint32_t {
  silent,    // it has not looked for the peer's inbox yet
  declined,  // it cannot use the peer's inbox: there is no lane
  willing,   // it has mapped the peer's inbox and seen the nonce
  left,      // it is over, and there was no lane
  tried,  // willing, and it has tried to copy out of the peer's GPU memory; only where both offer such memory
  ended,  // the lane stood here, and is over: to the other end, which may learn it only now, it stands and
          // breaks
};

// The ways by which GPU memory is named to another process, as bits.
constexpr uint32_t kByDescriptor = 1;  // allocations made for sharing, as NCCL's own buffers are
constexpr uint32_t kByHandle = 2;      // memory of cudaMalloc

enum class FrameKind : uint8_t {
  write = 1,
  notify,
  read,
  forget,  // drop the share `key`
  offer,   // map the share `key`, and answer
  answer,  // of an offer: the share `key` is mapped, if `imm` is not 0
};

// The place of a frame's bytes. shared: in GPU memory of the sender, which the receiver has mapped.
enum class Place : uint8_t { none, inlined, ring, shared };

constexpr uint16_t kMore = 1;  // another frame continues this write
constexpr uint16_t kTell = 2;  // the sender waits to hear that the frame was taken

// A frame: two cache lines. The peer of the inbox's owner writes it, `number` last.
struct Frame {
  std::atomic<uint32_t> number;  // its own number, from 1; written last
  FrameKind kind;
  Place place;
  uint16_t flags;     // kMore, kTell
  uint32_t consumed;  // frames that went the other way, as owner.consumed says
  uint32_t imm;
  uint32_t length;  // bytes of this frame
  uint32_t whole;   // bytes of the whole write
  uint64_t key;
  uint64_t offset;
  uint64_t source;                              // ring, shared: the place in there
  std::array<std::byte, kInlineBytes> inlined;  // shared: the share, in the first 8 bytes
};
static_assert(sizeof(Frame) == kLine);

struct Inbox {
  // Written by the owner, before anyone knows the inbox.
  struct alignas(kLine) {
    uint64_t magic;
    uint32_t version;
    uint32_t bytes;  // of the whole inbox
    Nonce nonce;     // proves to the peer that this is the inbox that it was told of
  } label;
  // Written by the owner. All that the peer reads while it waits for a frame to land is in this line.
  struct alignas(kLine) {
    std::atomic<Word> word;
    std::atomic<uint32_t> consumed;  // frames taken whose bytes are all in place
    std::atomic<int32_t> error;      // why the next frame was not taken: the lane is over
    std::atomic<uint32_t> reached;   // with Word::tried: the ways by which it reaches the peer's GPU memory
    Nonce peer;                      // with `word`: the owner of the inbox that it is willing to use
  } owner;
  struct alignas(kLine) {
    std::atomic<uint32_t> landing;  // the owner lands frames just now
  } turn;
  // Written by the peer, as are the frames and the ring.
  struct alignas(kLine) {
    std::atomic<uint32_t> fence;  // nothing that is here may land any more
  } peer;
  struct alignas(kLine) {
    std::atomic<uint32_t> length;  // of the answer to the read that is under way; 0: it is not here
    std::array<std::byte, kReplyBytes> bytes;
  } reply;
  alignas(kLine) std::array<Frame, kSlots> frames;
  alignas(kLine) std::array<std::byte, kRingBytes> ring;
};

static_assert(std::atomic<uint32_t>::is_always_lock_free && std::atomic<Word>::is_always_lock_free &&
              std::atomic<int32_t>::is_always_lock_free);

}  // namespace weft::local
