// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/base/bytes.h"
#include "weft/collective.h"

// The messages of a group's ranks to each other and to an aggregation daemon, beside the data. Decoders take
// any bytes; bytes that are no message of this version are an error. Values; any thread. Layout:
// docs/collectives.md.
namespace weft::coll {

constexpr uint32_t kMagic = 0x6c6f6377;  // "wcol"
constexpr uint16_t kVersion = 5;
constexpr int kMaxRanks = 4096;
// The least and the most bytes that are reduced at a time. A chunk is a multiple of kChunkAlign, so that it
// cuts no element of any type.
constexpr uint32_t kLeastChunk = 4096, kMostChunk = 1u << 24, kChunkAlign = 128;
constexpr size_t kControlBytes = 1600;  // the longest control message of a group
constexpr size_t kReasonBytes = 480;    // a longer text is cut
std::string shortened(const std::string& text);

// The kinds of message.
enum class Word : uint8_t { hello = 1, ballot, verdict, operation = 5, outOfBand };

// The first message on a connection between two ranks: the name of the caller.
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
  std::string reason;    // why the rank is not ready
  bool came = true;      // false: rank 0 writes it for a rank that is lost; not part of the message
  uint32_t afterMs = 0;  // since the last verdict: of several ranks that are not ready the first is blamed
  Bytes encode() const;
};

// Rank 0's count of the ballots.
struct Verdict {
  bool formed = false;
  std::string reason;  // names the rank at fault
  Bytes encode() const;
};

// The reason of a rank that could not go on since another rank could not. The vote blames the other one, if
// it can.
constexpr const char* kAnotherGaveUp = "another rank gave up";
// The same of a daemon that waited for ranks which did not come: the end of its words.
constexpr const char* kTooFewInTime = " in time";

// A piece of the talk of a library that sets itself up.
constexpr size_t kPieceBytes = 1500;
struct OutOfBandPiece {
  bool gaveUp = false;  // the sender gave up; no data
  Bytes data;
  Bytes encode() const;
};

// Announces an operation to an aggregation daemon. Its data follows in messages of a chunk each.
struct OperationHead {
  uint64_t sequence = 0;  // the backend's turn, the same on all ranks
  OperationKind kind = OperationKind::allReduce;
  ElementType type = ElementType::u8;
  ReduceOp op = ReduceOp::sum;
  uint64_t bytes = 0;         // of the whole vector, or of the window
  uint64_t bytesPerRank = 0;  // of a gather or scatter; else 0
  uint64_t windowOffset = 0;
  bool operator==(const OperationHead&) const = default;
  Bytes encode() const;
};
constexpr size_t kOperationHeadBytes = 48;

// The tags: control messages have 0. An operation has two by its turn, for what its members bring in and for
// results, so that operations never match each other's messages.
constexpr uint64_t kOperationsAtOnce = 64;
constexpr int contributionTag(uint64_t turn) {
  return 1 + 2 * static_cast<int>(turn % kOperationsAtOnce);
}
constexpr int resultTag(uint64_t turn) {
  return contributionTag(turn) + 1;
}
constexpr int kHeadTag = resultTag(kOperationsAtOnce - 1) + 1;

// A piece of an operation's vector, or of its window.
struct Span {
  size_t begin = 0;
  size_t end = 0;
  size_t bytes() const { return end - begin; }
};
// The part of a chunk that `rank` sends, and the part of the chunk's result that `rank` receives.
Span sentOf(const OperationHead& head, uint32_t rank, Span chunk);
Span receivedOf(const OperationHead& head, uint32_t rank, Span chunk);
// The rank's part of a window [offset, offset + bytes) of all ranks' parts, counted from the window's begin;
// outside of the window it is empty.
Span partOf(uint64_t bytesPerRank, uint64_t offset, uint64_t bytes, uint32_t rank);

// The decoders check every number against its limits, so that the caller may use them as sizes.
Result<Hello> decodeHello(std::span<const std::byte> bytes);
Result<Ballot> decodeBallot(std::span<const std::byte> bytes);
Result<Verdict> decodeVerdict(std::span<const std::byte> bytes);
Result<OutOfBandPiece> decodePiece(std::span<const std::byte> bytes);
bool isOutOfBand(std::span<const std::byte> bytes);
Result<OperationHead> decodeOperation(std::span<const std::byte> bytes);

// The operation in words, for an error that shows two operations which differ.
std::string describe(const OperationHead& head);

// Counts the votes of all ranks: formed when all are ready with the same settings, else the first reason
// against it. A rank that is lost is the reason that others give as well, so it goes first.
Verdict count(const std::vector<Ballot>& ballots);

}  // namespace weft::coll
