// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/wire.h"

#include <algorithm>

#include "src/base/log.h"

// Encoding, decoding and checking of the messages; the count of the votes.
namespace weft::coll {

namespace {

ByteWriter begin(Word word) {
  ByteWriter out;
  out.put(kMagic).put(kVersion).put(word).put(uint8_t{0});
  return out;
}

Error notIt(const char* what, const std::string& why) {
  return Error(Code::remote, format("reading the %s of a collective group", what), why);
}

// Checks the head of a message. Leaves the reader behind it.
Status readHead(ByteReader* in, Word word, const char* what) {
  const auto magic = in->get<uint32_t>();
  const auto version = in->get<uint16_t>();
  const auto said = in->get<Word>();
  in->get<uint8_t>();
  if (in->failed() || magic != kMagic) return notIt(what, "these bytes are no message of weft's collectives");
  if (version != kVersion)
    return notIt(what, format("it is of version %u, this is version %u: install one release everywhere",
                              version, kVersion));
  if (said != word) return notIt(what, format("it is message %u instead", static_cast<unsigned>(said)));
  return {};
}

Status readEnd(const ByteReader& in, const char* what) {
  if (in.done()) return {};
  return notIt(what, in.failed() ? "it is cut off" : "it has more bytes than belong to it");
}

}  // namespace

std::string shortened(const std::string& text) {
  return text.size() <= kReasonBytes ? text : text.substr(0, kReasonBytes - 3) + "...";
}

Bytes Hello::encode() const {
  return begin(Word::hello).put(group).put(rank).put(ranks).take();
}

Bytes Ballot::encode() const {
  return begin(Word::ballot)
      .put(uint8_t{ready})
      .text(shortened(settings))
      .text(shortened(reason))
      .put(afterMs)
      .take();
}

Bytes Verdict::encode() const {
  return begin(Word::verdict).put(uint8_t{formed}).text(shortened(reason)).take();
}

Bytes OutOfBandPiece::encode() const {
  return begin(Word::outOfBand).put(uint8_t{gaveUp}).blob(data).take();
}

Bytes OperationHead::encode() const {
  return begin(Word::operation)
      .put(sequence)
      .put(kind)
      .put(type)
      .put(op)
      .put(uint8_t{0})
      .put(uint32_t{0})
      .put(bytes)
      .put(bytesPerRank)
      .put(windowOffset)
      .take();
}

Result<Hello> decodeHello(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  TRY(readHead(&in, Word::hello, "hello"));
  Hello hello;
  hello.group = in.get<uint64_t>();
  hello.rank = in.get<uint32_t>();
  hello.ranks = in.get<uint32_t>();
  TRY(readEnd(in, "hello"));
  if (hello.ranks < 1 || hello.ranks > kMaxRanks || hello.rank >= hello.ranks)
    return notIt("hello", format("rank %u of %u is impossible", hello.rank, hello.ranks));
  return hello;
}

Result<Ballot> decodeBallot(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  TRY(readHead(&in, Word::ballot, "ballot"));
  Ballot ballot;
  ballot.ready = in.get<uint8_t>() != 0;
  ballot.settings = in.text();
  ballot.reason = in.text();
  ballot.afterMs = in.get<uint32_t>();
  TRY(readEnd(in, "ballot"));
  return ballot;
}

Result<Verdict> decodeVerdict(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  TRY(readHead(&in, Word::verdict, "verdict"));
  Verdict verdict;
  verdict.formed = in.get<uint8_t>() != 0;
  verdict.reason = in.text();
  TRY(readEnd(in, "verdict"));
  return verdict;
}

Result<OutOfBandPiece> decodePiece(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  TRY(readHead(&in, Word::outOfBand, "set-up"));
  OutOfBandPiece piece;
  piece.gaveUp = in.get<uint8_t>() != 0;
  const auto data = in.blob();
  piece.data.assign(data.begin(), data.end());
  TRY(readEnd(in, "set-up"));
  if (piece.data.size() > kPieceBytes) return notIt("set-up", "a piece is too long");
  return piece;
}

bool isOutOfBand(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  return static_cast<bool>(readHead(&in, Word::outOfBand, "set-up"));
}

Result<OperationHead> decodeOperation(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  TRY(readHead(&in, Word::operation, "announcement"));
  OperationHead head;
  head.sequence = in.get<uint64_t>();
  head.kind = in.get<OperationKind>();
  head.type = in.get<ElementType>();
  head.op = in.get<ReduceOp>();
  in.get<uint8_t>();
  in.get<uint32_t>();
  head.bytes = in.get<uint64_t>();
  head.bytesPerRank = in.get<uint64_t>();
  head.windowOffset = in.get<uint64_t>();
  TRY(readEnd(in, "announcement"));
  constexpr uint64_t kMost = uint64_t{1} << 40;
  if (head.kind > OperationKind::reduceScatter || head.bytes > kMost || head.bytesPerRank > kMost ||
      head.windowOffset > kMost * kMaxRanks)
    return notIt("announcement", "there is no such operation: " + describe(head));
  return head;
}

Span partOf(uint64_t bytesPerRank, uint64_t offset, uint64_t bytes, uint32_t rank) {
  const size_t from = std::clamp<size_t>(rank * bytesPerRank, offset, offset + bytes);
  const size_t to = std::clamp<size_t>((rank + uint64_t{1}) * bytesPerRank, offset, offset + bytes);
  return {from - offset, to - offset};
}

namespace {

Span overlap(Span a, Span b) {
  const size_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

Span windowPart(const OperationHead& head, uint32_t rank) {
  return partOf(head.bytesPerRank, head.windowOffset, head.bytes, rank);
}

}  // namespace

Span sentOf(const OperationHead& head, uint32_t rank, Span chunk) {
  if (head.kind == OperationKind::allGather) return overlap(windowPart(head, rank), chunk);
  return chunk;
}

Span receivedOf(const OperationHead& head, uint32_t rank, Span chunk) {
  return head.kind == OperationKind::reduceScatter ? overlap(windowPart(head, rank), chunk) : chunk;
}

std::string describe(const OperationHead& head) {
  constexpr const char* kKinds[] = {"all_reduce", "all_gather", "reduce_scatter"};
  const auto kind = static_cast<size_t>(head.kind);
  return format("operation %llu, %s of %llu bytes, type %u, op %u, %llu bytes a rank from %llu",
                static_cast<unsigned long long>(head.sequence),
                kind < std::size(kKinds) ? kKinds[kind] : "unknown",
                static_cast<unsigned long long>(head.bytes), static_cast<unsigned>(head.type),
                static_cast<unsigned>(head.op), static_cast<unsigned long long>(head.bytesPerRank),
                static_cast<unsigned long long>(head.windowOffset));
}

namespace {

// How much the reason of a ballot weighs that is against the group: a rank that only gave up because another
// did, or was not there, is blamed last.
int weightOf(const Ballot& ballot) {
  if (!ballot.came) return 3;
  if (ballot.ready) return 0;
  for (const char* follows : {kAnotherGaveUp, kTooFewInTime})
    if (ballot.reason.find(follows) != std::string::npos) return 1;
  return 2;
}

}  // namespace

// Of equal weight is blamed who gave up first: what happened later may have come of it.
Verdict count(const std::vector<Ballot>& ballots) {
  const auto blamed = std::max_element(ballots.begin(), ballots.end(), [](const Ballot& a, const Ballot& b) {
    return weightOf(a) != weightOf(b) ? weightOf(a) < weightOf(b) : a.afterMs > b.afterMs;
  });
  if (blamed != ballots.end() && weightOf(*blamed) > 0)
    return {false, format("rank %d: %s", static_cast<int>(blamed - ballots.begin()), blamed->reason.c_str())};
  for (size_t rank = 1; rank < ballots.size(); rank++)
    if (ballots[rank].settings != ballots[0].settings)
      return {false, format("rank %zu has %s and rank 0 has %s; give all ranks the same settings", rank,
                            ballots[rank].settings.c_str(), ballots[0].settings.c_str())};
  return {true, {}};
}

}  // namespace weft::coll
