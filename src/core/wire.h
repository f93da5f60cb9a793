// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

// What one process writes into another's memory, and the 32 bits of a notification. All fields little-endian,
// fixed offsets; described in docs/wire.md ("In memory"). Pure; any thread.
namespace weft::core {

// The notification of a write:

// A segment that was asked for again says so, in turns, so that what is late from before is told apart.
enum class NoteKind : uint8_t { segment = 0, eager = 1, againOdd = 2, againEven = 3 };

constexpr int kSlotBits = 18;
constexpr uint32_t kMaxSlots = uint32_t{1} << kSlotBits;
constexpr uint32_t kMaxSegments = 16;
constexpr uint32_t kGenerations = 16;  // of a slot, to tell late notifications from fresh ones

// kind 2 bits | slot 18 | segment 4 | segments - 1 4 | generation 4
struct Note {
  NoteKind kind = NoteKind::segment;
  uint32_t slot = 0;     // receive slot, or eager slot, of the receiving engine
  uint32_t segment = 0;  // 0 <= segment < segments <= 16
  uint32_t segments = 1;
  uint32_t generation = 0;

  uint32_t encode() const {
    return static_cast<uint32_t>(kind) << 30 | (slot & (kMaxSlots - 1)) << 12 | (segment & 15) << 8 |
           ((segments - 1) & 15) << 4 | (generation & 15);
  }
  // Nothing: a segment that cannot be.
  static std::optional<Note> decode(uint32_t imm) {
    Note note;
    note.kind = static_cast<NoteKind>(imm >> 30);
    note.slot = imm >> 12 & (kMaxSlots - 1);
    note.segment = imm >> 8 & 15;
    note.segments = (imm >> 4 & 15) + 1;
    note.generation = imm & 15;
    if (note.segment >= note.segments) return std::nullopt;
    return note;
  }
};

// Clear to send: one 64-byte line per receive, in a ring of the sender's memory:

// Lines form a chain: each names the position of the one after it, so a position busy with an old message
// never holds up a new one. A line is believed only when comm, sequence and checksum fit: it may be torn,
// late or stale.
struct CtsLine {
  uint32_t comm = 0;      // the sender's number for the connection
  uint32_t sequence = 0;  // place in the chain
  uint32_t tag = 0;
  uint32_t k = 0;          // how many receives of this tag came before, mod the sequence width
  uint32_t memory = 0;     // announced id
  uint32_t slot = 0;       // receive slot (18 bits) | generation << 18
  uint64_t offset = 0;     // from the first byte of that memory
  uint64_t size = 0;       // room there, bytes
  uint16_t next = 0;       // position of the next line
  uint16_t reserved = 0;   // zero
  uint32_t reserved2 = 0;  // zero
  uint64_t reserved3 = 0;  // zero
  uint64_t checksum = 0;   // over the 56 bytes before it
};
static_assert(sizeof(CtsLine) == 64);

constexpr uint16_t kRingLines = 320;  // 32 requests x 8 receives in flight, and room for lines not yet read
constexpr size_t kRingBytes = kRingLines * sizeof(CtsLine);

// Eager: header and payload in one slot of the receiver's pool:

struct EagerHeader {
  uint32_t comm = 0;  // the receiver's number for the connection
  uint32_t tag = 0;
  uint32_t k = 0;
  uint32_t size = 0;     // payload bytes after the header
  uint32_t ctsRead = 0;  // sequence of the first line the sender has not read yet: earlier ones may be reused
  uint32_t use = 0;      // of the slot, counted from 0: a write that comes again carries an old one
  uint64_t checksum = 0;
};
static_assert(sizeof(EagerHeader) == 32);

constexpr uint32_t kEagerSlotsPerPeering = 64;

// Credits: which eager slots are free again, in the sender's memory:

// Slot i is free while bit i equals the sender's own bit i, which it flips at each use. State, not a
// difference: a line that is lost or late is made up for by the next.
struct CreditLine {
  uint32_t sequence = 0;
  uint32_t peering = 0;  // the sender's number for the peering
  uint64_t freed = 0;
  uint64_t checksum = 0;
};
static_assert(sizeof(CreditLine) == 24);

void seal(CtsLine* line);
void seal(EagerHeader* header);
void seal(CreditLine* line);

// Copies out of memory that a NIC may be writing, and says whether the copy is whole.
bool readWhole(const void* from, CtsLine* out);
bool readWhole(const void* from, EagerHeader* out);
bool readWhole(const void* from, CreditLine* out);

}  // namespace weft::core
