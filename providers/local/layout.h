// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "src/base/siphash.h"

// The memory that two processes of one host share. Each end of a lane owns an inbox, into which the peer
// puts frames and from which the owner lands them. So there are two for a lane, and in each every word has
// one writer: the owner or the peer, as said below. Both ends are built from this header; another version is
// told by kVersion. A peer may write anything here at any time: its owner checks what it takes out, once, in
// a copy of its own.
namespace weft::local {

constexpr size_t kMaxWriteBytes = size_t{1} << 30;

constexpr uint64_t kMagic = 0x316c636c74666577;  // "weftlcl1"
constexpr uint32_t kVersion = 3;

constexpr uint32_t kSlots = 256;           // a power of two
constexpr size_t kInlineBytes = 80;        // with the frame itself
constexpr size_t kRingBytes = 256 << 10;   // for all other bytes
constexpr size_t kMostInFrame = 16 << 10;  // a write that is larger goes in pieces of that
constexpr size_t kMostShared = 1 << 20;    // the same, of GPU memory that is not in the frame or ring
constexpr size_t kReplyBytes = 16 << 10;   // of what was read at a time
constexpr size_t kLine = 128;              // two cache lines: processors fetch them in pairs
// Writes from here on go past the caches, into the ring and out of it: a line that one processor has
// written is slow to get for another one, and what is fetched only to be written over is in the way.
constexpr size_t kLarge = 64 << 10;

using Nonce = Tag128;

// How far an end is with its peer. It alone says so, in its own inbox.
enum class Word : uint32_t {
  silent,    // it has not looked for the peer's inbox yet
  declined,  // it cannot use it: there is no lane
  willing,   // it has mapped it and seen the nonce
  left,      // the lane is over
  proven,    // willing, and it has copied out of the peer's GPU memory; where both offered such
  apart,     // as proven, but it cannot reach that memory, which has to go through the ring
};

enum class FrameKind : uint8_t { write = 1, notify, read, forget };  // forget: GPU memory, `key` names it

// Where a frame's bytes are. shared: in GPU memory of the sender, which the receiver has mapped.
enum class Place : uint8_t { none, inlined, ring, shared };

constexpr uint16_t kMore = 1;  // another frame continues this write
constexpr uint16_t kTell = 2;  // its sender waits to hear that it was taken

struct Frame {
  std::atomic<uint32_t> number;  // its own, counted from 1; written last
  FrameKind kind;
  Place place;
  uint16_t flags;     // kMore, kTell
  uint32_t consumed;  // of the frames that went the other way, as the last word of its line says
  uint32_t imm;
  uint32_t length;  // of this frame's bytes
  uint32_t whole;   // of the write
  uint64_t key;
  uint64_t offset;
  uint64_t source;                              // ring, shared: the place in it
  std::array<std::byte, kInlineBytes> inlined;  // shared: in its first 8 bytes, which memory
};
static_assert(sizeof(Frame) == kLine);

struct Inbox {
  // By the owner, before anybody knows of it.
  struct alignas(kLine) {
    uint64_t magic;
    uint32_t version;
    uint32_t bytes;  // of all this
    Nonce nonce;     // proves to the peer that this is the inbox which it was told of
  } label;
  // By the owner. All that the peer reads while it waits for something to land is in this line.
  struct alignas(kLine) {
    std::atomic<Word> word;
    std::atomic<uint32_t> consumed;  // frames taken, all that they carry being where it belongs
    std::atomic<int32_t> error;      // why the next one was not taken: the lane is over
    Nonce peer;                      // with `word`: whose inbox it is willing to use
  } owner;
  struct alignas(kLine) {
    std::atomic<uint32_t> landing;  // the owner lands frames just now
  } turn;
  // By the peer.
  struct alignas(kLine) {
    std::atomic<uint32_t> fence;  // nothing that is here may land any more
  } peer;
  struct alignas(kLine) {
    std::atomic<uint32_t> length;  // of the answer to the one read that is under way; 0: it is not here
    std::array<std::byte, kReplyBytes> bytes;
  } reply;
  alignas(kLine) std::array<Frame, kSlots> frames;
  alignas(kLine) std::array<std::byte, kRingBytes> ring;
};

static_assert(std::atomic<uint32_t>::is_always_lock_free && std::atomic<Word>::is_always_lock_free &&
              std::atomic<int32_t>::is_always_lock_free);

}  // namespace weft::local
