// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "src/base/device_order.h"

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

constexpr uint32_t kNoteSlotStep = 1u << 12;  // from one slot to the next

constexpr uint32_t noteKindBits(NoteKind kind) {
  return static_cast<uint32_t>(kind) << 30;
}

// kind 2 bits | slot 18 | segment 4 | segments - 1 4 | generation 4, read where they are needed.
class ReceivedNote {
 public:
  explicit ReceivedNote(uint32_t imm) : imm_(imm) {}
  NoteKind kind() const { return static_cast<NoteKind>(imm_ >> 30); }
  uint32_t slot() const { return imm_ >> 12 & (kMaxSlots - 1); }
  uint32_t segment() const { return imm_ >> 8 & 15; }
  uint32_t segments() const { return (imm_ >> 4 & 15) + 1; }
  uint32_t generation() const { return imm_ & 15; }
  bool possible() const { return segment() < segments(); }  // else nobody of ours wrote it
  // One segment, generation 0: as eager ones.
  bool whole() const { return (imm_ & (kNoteSlotStep - 1)) == 0; }

 private:
  uint32_t imm_;
};

struct Note {
  NoteKind kind = NoteKind::segment;
  uint32_t slot = 0;     // receive slot, or eager slot, of the receiving engine
  uint32_t segment = 0;  // 0 <= segment < segments <= 16
  uint32_t segments = 1;
  uint32_t generation = 0;

  uint32_t encode() const {
    return noteKindBits(kind) | (slot & (kMaxSlots - 1)) << 12 | (segment & 15) << 8 |
           ((segments - 1) & 15) << 4 | (generation & 15);
  }
  // Nothing: a segment that cannot be.
  static std::optional<Note> decode(uint32_t imm) {
    const ReceivedNote note(imm);
    if (!note.possible()) return std::nullopt;
    return Note{note.kind(), note.slot(), note.segment(), note.segments(), note.generation()};
  }
};

// The notification of a segment, first attempt, for a receive slot as CTS name it.
inline uint32_t segmentNote(uint32_t slotCode, uint32_t segment, uint32_t segments) {
  return (slotCode & (kMaxSlots - 1)) << 12 | segment << 8 | (segments - 1) << 4 |
         (slotCode >> kSlotBits & (kGenerations - 1));
}

// Clear to send: one 64-byte line per receive, in a ring of the sender's memory:

// In a CTS's place for a memory id: the message is placed, so where it lands is its sender's to say.
constexpr uint32_t kAnyMemory = UINT32_MAX;

// CTS form a chain: each names the position of the one after it, so a position busy with an old message
// never holds up a new one. A CTS is believed only when comm, sequence and checksum fit: it may be torn,
// late or stale.
struct Cts {
  uint32_t comm = 0;      // the sender's number for the connection
  uint32_t sequence = 0;  // place in the chain
  uint32_t tag = 0;
  uint32_t k = 0;          // how many receives of this tag came before, mod the sequence width
  uint32_t memory = 0;     // announced id, or kAnyMemory
  uint32_t slot = 0;       // receive slot (18 bits) | generation << 18
  uint64_t offset = 0;     // from the first byte of that memory
  uint64_t size = 0;       // room there, bytes
  uint16_t next = 0;       // position of the next CTS
  uint16_t reserved = 0;   // zero
  uint32_t reserved2 = 0;  // zero
  uint64_t reserved3 = 0;  // zero
  uint64_t checksum = 0;   // over the 56 bytes before it
};
static_assert(sizeof(Cts) == 64);

constexpr uint16_t kRingPositions = 320;  // 32 requests x 8 receives in flight, and room for CTS not yet read
constexpr size_t kRingBytes = kRingPositions * sizeof(Cts);

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

// Of one slot, for messages of at most so many bytes: whole cache lines; 0: there are no slots.
inline uint32_t eagerSlotBytes(int eagerMax) {
  return eagerMax == 0 ? 0 : (static_cast<uint32_t>(eagerMax) + uint32_t{sizeof(EagerHeader)} + 63) / 64 * 64;
}

// Credits: which eager slots are free again, in the sender's memory:

// Slot i is free while bit i equals the sender's own bit i, which it flips at each use. State, not a
// difference: a CTS that is lost or late is made up for by the next.
struct CreditRecord {
  uint32_t sequence = 0;
  uint32_t peering = 0;  // the sender's number for the peering
  uint64_t freed = 0;
  uint64_t checksum = 0;
};
static_assert(sizeof(CreditRecord) == 24);

// Over all words of a record but the last, which holds it. Not cryptographic: it tells a whole record from a
// torn or stale one. Each step is a bijection of what came before and of the word.
template <class Record>
uint64_t checksumOf(const uint64_t (&words)[sizeof(Record) / 8]) {
  constexpr size_t kCount = sizeof(Record) / 8 - 1;
  uint64_t sum = 0x9e3779b97f4a7c15u + kCount;
  for (size_t i = 0; i < kCount; i++) sum = std::rotl((sum ^ words[i]) * 0xbf58476d1ce4e5b9u, 32);
  return sum;
}

template <class Record>
void seal(Record* record) {
  uint64_t words[sizeof(Record) / 8];
  std::memcpy(words, record, sizeof words);
  record->checksum = checksumOf<Record>(words);
}

// Copies out of memory that a NIC may be writing, and says whether the copy is whole: volatile keeps the
// compiler from reading twice, the barrier keeps later reads (of an eager payload) behind the check. A
// provider in software writes there from a thread of its own, too, which ThreadSanitizer need not know: what
// is torn does not pass for whole.
template <class Record>
__attribute__((no_sanitize("thread"))) bool readWords(const void* from,
                                                      uint64_t (&words)[sizeof(Record) / 8]) {
  constexpr size_t kWords = sizeof(Record) / 8;
  const auto* source = static_cast<const volatile uint64_t*>(from);
  for (size_t i = 0; i < kWords; i++) words[i] = source[i];
  afterDeviceWrote();
  return words[kWords - 1] == checksumOf<Record>(words);
}

template <class Record>
bool readWhole(const void* from, Record* out) {
  uint64_t words[sizeof(Record) / 8];
  const bool whole = readWords<Record>(from, words);
  std::memcpy(out, words, sizeof words);
  return whole;
}

// CTS and eager headers pass through registers, as one of them comes with every message: as words, not by
// way of memory.
inline bool readCts(const void* from, Cts* out) {
  uint64_t words[sizeof(Cts) / 8];
  const bool whole = readWords<Cts>(from, words);
  out->comm = static_cast<uint32_t>(words[0]);
  out->sequence = static_cast<uint32_t>(words[0] >> 32);
  out->tag = static_cast<uint32_t>(words[1]);
  out->k = static_cast<uint32_t>(words[1] >> 32);
  out->memory = static_cast<uint32_t>(words[2]);
  out->slot = static_cast<uint32_t>(words[2] >> 32);
  out->offset = words[3];
  out->size = words[4];
  out->next = static_cast<uint16_t>(words[5]);
  return whole;
}

// One look at where the CTS awaited next will be, before the whole of it is copied and summed up. It decides
// nothing, so it need not be volatile.
__attribute__((no_sanitize("thread"))) inline bool ctsBegins(const void* at, uint32_t comm,
                                                             uint32_t sequence) {
  uint32_t words[2];
  std::memcpy(words, at, sizeof words);
  return words[0] == comm && words[1] == sequence;
}

// What is there passes for no CTS any more.
__attribute__((no_sanitize("thread"))) inline void eraseCts(void* at) {
  std::memset(at, 0, sizeof Cts::comm);
}

// A line of the ring that was whole when it was read, taken from where it lies. A receiver that writes it
// again writes the same; whatever else it writes there can only misplace what it is sent itself.
class HeldCts {
 public:
  explicit HeldCts(const void* at) : cts_(static_cast<const Cts*>(at)) {}
  explicit operator bool() const { return cts_ != nullptr; }

  uint32_t k() const { return read(&Cts::k); }
  uint32_t memory() const { return read(&Cts::memory); }
  uint32_t slot() const { return read(&Cts::slot); }
  uint64_t offset() const { return read(&Cts::offset); }
  uint64_t size() const { return read(&Cts::size); }

 private:
  template <class Field>
  __attribute__((no_sanitize("thread"))) Field read(Field Cts::*field) const {
    return cts_->*field;
  }

  const Cts* cts_;
};

inline bool readHeader(const void* from, EagerHeader* out) {
  uint64_t words[sizeof(EagerHeader) / 8];
  const bool whole = readWords<EagerHeader>(from, words);
  out->comm = static_cast<uint32_t>(words[0]);
  out->tag = static_cast<uint32_t>(words[0] >> 32);
  out->k = static_cast<uint32_t>(words[1]);
  out->size = static_cast<uint32_t>(words[1] >> 32);
  out->ctsRead = static_cast<uint32_t>(words[2]);
  out->use = static_cast<uint32_t>(words[2] >> 32);
  return whole;
}

// Adds the checksum. Volatile: the compiler would collect the words in a vector register, by way of memory.
template <class Record>
void writeWords(void* to, uint64_t (&words)[sizeof(Record) / 8]) {
  constexpr size_t kWords = sizeof(Record) / 8;
  words[kWords - 1] = checksumOf<Record>(words);
  auto* target = static_cast<volatile uint64_t*>(to);
  for (size_t i = 0; i < kWords; i++) target[i] = words[i];
}

inline void writeCts(void* to, const Cts& cts) {
  uint64_t words[sizeof(Cts) / 8] = {cts.comm | uint64_t{cts.sequence} << 32,
                                     cts.tag | uint64_t{cts.k} << 32,
                                     cts.memory | uint64_t{cts.slot} << 32,
                                     cts.offset,
                                     cts.size,
                                     cts.next};
  writeWords<Cts>(to, words);
}

inline void writeHeader(void* to, const EagerHeader& header) {
  uint64_t words[sizeof(EagerHeader) / 8] = {header.comm | uint64_t{header.tag} << 32,
                                             header.k | uint64_t{header.size} << 32,
                                             header.ctsRead | uint64_t{header.use} << 32};
  writeWords<EagerHeader>(to, words);
}

}  // namespace weft::core
