// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/base/bytes.h"
#include "weft/collective.h"

// The messages of a group's ranks to each other, and to an aggregation daemon, beside the data. Decoders take
// any bytes: those that are no message of this version are an error. Values; any thread. Layout:
// docs/collectives.md.
namespace weft::coll {

constexpr uint32_t kMagic = 0x6c6f6377;  // "wcol"
constexpr uint16_t kVersion = 2;
constexpr int kMaxRanks = 4096;
constexpr size_t kControlBytes = 1600;  // the longest message of a group
constexpr size_t kReasonBytes = 480;    // a longer text is cut

enum class Word : uint8_t { hello = 1, ballot, verdict, alarm, operation, outOfBand };

// The first words on a connection between two ranks: the caller's name.
struct Hello {
  uint64_t group = 0;  // the same on all its ranks: a hash of their handles
  uint32_t rank = 0;
  uint32_t ranks = 0;
  Bytes encode() const;
};

// A rank's vote on whether the group is formed.
struct Ballot {
  bool ready = false;
  std::string settings;  // must be equal on all ranks
  std::string place;     // the daemon it would join; empty: none
  std::string reason;    // when it is not ready
  Bytes encode() const;
};

struct Verdict {
  bool formed = false;
  std::string reason;  // names the rank
  uint32_t local = 0;  // ranks of the same place as the one that is told
  Bytes encode() const;
};

// The reason of a rank that could not go on as another could not: the vote blames that one, if it can.
constexpr const char* kAnotherGaveUp = "another rank gave up";

// The group is broken: said once to all others by the rank or daemon that notices.
struct Alarm {
  std::string reason;     // empty: nothing is wrong, the sender leaves
  bool treeLost = false;  // a daemon or a connection of the tree failed: the ranks may go on without it
  Bytes encode() const;
};

// The talk of a library that sets itself up, in pieces.
constexpr size_t kPieceBytes = 1500;
struct OutOfBandPiece {
  bool gaveUp = false;
  Bytes data;
  Bytes encode() const;
};

// Announces an operation to an aggregation daemon; its data follows in messages of one chunk each.
struct OperationHead {
  uint64_t sequence = 0;
  OperationKind kind = OperationKind::allReduce;
  ElementType type = ElementType::u8;
  ReduceOp op = ReduceOp::sum;
  uint64_t bytes = 0;         // of the whole vector
  uint64_t bytesPerRank = 0;  // where there are parts
  uint64_t windowOffset = 0;
  bool inlined = false;  // the data is behind this head, instead of in messages of its own
  bool operator==(const OperationHead&) const = default;
  Bytes encode() const;
};
constexpr size_t kOperationHeadBytes = 48;
constexpr size_t kInlineBytes = 4096;  // that travel behind a head, at most

// A piece of an operation's vector, or of its window.
struct Span {
  size_t begin = 0;
  size_t end = 0;
  size_t bytes() const { return end - begin; }
};
// The part of a chunk that `rank` sends, and the part of the chunk's result that it receives.
Span sentOf(const OperationHead& head, uint32_t rank, Span chunk);
Span receivedOf(const OperationHead& head, uint32_t rank, Span chunk);
// Of the whole vector or window: what belongs to the rank where there are parts.
Span partOf(const OperationHead& head, uint32_t rank);

Result<Hello> decodeHello(std::span<const std::byte> bytes);
Result<Ballot> decodeBallot(std::span<const std::byte> bytes);
Result<Verdict> decodeVerdict(std::span<const std::byte> bytes);
Result<Alarm> decodeAlarm(std::span<const std::byte> bytes);
Result<OutOfBandPiece> decodePiece(std::span<const std::byte> bytes);
bool isOutOfBand(std::span<const std::byte> bytes);
Result<OperationHead> decodeOperation(std::span<const std::byte> bytes);

// In words, for an error that shows two which differ.
std::string describe(const OperationHead& head);

// The vote of all ranks: formed when all are ready with the same settings, else the first reason against it.
Verdict count(const std::vector<Ballot>& ballots);

}  // namespace weft::coll
