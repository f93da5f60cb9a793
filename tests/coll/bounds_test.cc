// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <unistd.h>
#include <vector>

#include "src/coll/join.h"
#include "src/coll/peers.h"
#include "src/coll/wire.h"
#include "tests/support/catch.h"

// Every number of a message, and of an operation that NCCL starts: its first and its last value are taken,
// and those beside them are not.
using namespace weft;
using namespace weft::coll;

namespace {

JoinRequest request(const std::function<void(JoinRequest&)>& change = {}) {
  JoinRequest made;
  made.group = 7;
  made.ranks = 10;
  made.rank = 3;
  made.chunkBytes = 65536;
  made.name = "rank 3";
  if (change) change(made);
  return made;
}

bool comes(const JoinRequest& request) {
  return static_cast<bool>(decodeJoinRequest(request.encode()));
}

OperationHead head(const std::function<void(OperationHead&)>& change = {}) {
  OperationHead made;
  made.bytes = 4000;
  if (change) change(made);
  return made;
}

bool comes(const OperationHead& head) {
  const auto decoded = decodeOperation(head.encode());
  return decoded && *decoded == head;
}

bool comes(const Hello& hello) {
  return static_cast<bool>(decodeHello(hello.encode()));
}

// Cut off, or longer by a byte.
template <class Decode>
void checkLength(const Bytes& message, const Decode& decode) {
  CHECK(decode(message));
  Bytes longer = message;
  longer.push_back(std::byte{0});
  CHECK_FALSE(decode(longer));
  CHECK_FALSE(decode(Bytes(message.begin(), message.end() - 1)));
}

// Of another kind, of another magic, or of another version.
template <class Decode>
void checkHead(const Bytes& message, const Decode& decode) {
  for (const size_t at : {size_t{0}, size_t{4}, size_t{6}}) {
    Bytes other = message;
    other[at] ^= std::byte{0x40};
    CHECK_FALSE(decode(other));
  }
}

constexpr size_t kMost = size_t{1} << 40;
struct SomeMemory final : GroupMemory {};
SomeMemory memory;

// In a group of four, as rank 1.
std::string fault(const std::function<void(Operation&)>& change) {
  Operation operation;
  operation.kind = OperationKind::allGather;
  operation.type = ElementType::i32;
  operation.bytesPerRank = 100;
  operation.windowBytes = 400;
  operation.sendMemory = &memory;
  change(operation);
  const char* found = faultOf(operation, 1, 4);
  return found ? found : "";
}

}  // namespace

TEST_CASE("a request to join is taken at the edges of its numbers, and not beyond them") {
  CHECK(comes(request()));
  const std::vector<std::function<void(JoinRequest&)>> good = {
      [](auto& r) { r.ranks = 1, r.rank = 0; }, [](auto& r) { r.ranks = kMaxRanks; },
      [](auto& r) { r.rank = 9; }, [](auto& r) { r.chunkBytes = 4096; },
      [](auto& r) { r.chunkBytes = 1u << 24; }};
  for (size_t i = 0; i < good.size(); i++) {
    INFO(i);
    CHECK(comes(request(good[i])));
  }
  const std::vector<std::function<void(JoinRequest&)>> bad = {[](auto& r) { r.ranks = r.rank = 0; },
                                                              [](auto& r) { r.ranks = kMaxRanks + 1; },
                                                              [](auto& r) { r.rank = 10; },
                                                              [](auto& r) { r.chunkBytes = 4095; },
                                                              [](auto& r) { r.chunkBytes = 4100; },
                                                              [](auto& r) { r.chunkBytes = 10'001; },
                                                              [](auto& r) { r.chunkBytes = (1u << 24) + 1; }};
  for (size_t i = 0; i < bad.size(); i++) {
    INFO(i);
    CHECK_FALSE(comes(request(bad[i])));
  }
}

TEST_CASE("what is said while a rank joins comes as it was sent") {
  const JoinRequest asked = request([](auto& r) { r.waitMs = 90'000; });
  const auto came = decodeJoinRequest(asked.encode());
  REQUIRE(came);
  CHECK(came->name == "rank 3");
  CHECK(came->rank == asked.rank);
  CHECK(came->waitMs == 90'000);
  for (const bool accepted : {true, false}) {
    JoinAnswer said;
    said.accepted = accepted;
    said.reason = "why";
    const auto answer = decodeJoinAnswer(said.encode());
    REQUIRE(answer);
    CHECK(answer->accepted == accepted);
    CHECK(answer->reason == "why");
  }
  CHECK(*decodeStatusRequest(encodeStatusRequest(2)) == 2);
  const auto isRequest = [](const Bytes& bytes) { return bool(decodeJoinRequest(bytes)); };
  const auto isAnswer = [](const Bytes& bytes) { return bool(decodeJoinAnswer(bytes)); };
  const auto isStatus = [](const Bytes& bytes) { return bool(decodeStatusRequest(bytes)); };
  checkLength(asked.encode(), isRequest);
  checkHead(asked.encode(), isRequest);
  checkLength(JoinAnswer{}.encode(), isAnswer);
  checkHead(JoinAnswer{}.encode(), isAnswer);
  checkLength(encodeStatusRequest(0), isStatus);
  checkHead(encodeStatusRequest(0), isStatus);
}

TEST_CASE("a secret is the setting, or the first line of the file that it names") {
  const auto file = std::filesystem::temp_directory_path() / ("weft-secret-" + std::to_string(::getpid()));
  const auto written = [&](const char* text) {
    std::ofstream(file) << text;
    return readSecret("@" + file.string());
  };
  CHECK(*readSecret("sixteen letters!") == "sixteen letters!");
  CHECK(*written("sixteen letters!\nand more\n") == "sixteen letters!");
  CHECK(readSecret("")->empty());
  CHECK_FALSE(written(""));  // no secret at all would let everybody in
  CHECK_FALSE(readSecret("fifteen letters"));
  CHECK_FALSE(written("fifteen letters\nand more\n"));
  std::filesystem::remove(file);
  const auto missing = readSecret("@" + file.string());
  REQUIRE_FALSE(missing);
  CHECK(missing.error().detail() == file.string() + " cannot be read");
}

TEST_CASE("a message's length is taken up to the most that its reader allows") {
  const auto lengthOf = [](uint32_t length) { return restOf(ByteWriter().put(length).take()); };
  CHECK(*lengthOf(kMessageBytes) == kMessageBytes + kSealBytes);
  CHECK_FALSE(lengthOf(kMessageBytes + 1));
}

TEST_CASE("a hello is taken from the first rank to the last of a group that can be") {
  CHECK(comes(Hello{1, 0, 1}));
  CHECK(comes(Hello{1, kMaxRanks - 1, kMaxRanks}));
  CHECK_FALSE(comes(Hello{1, 0, 0}));
  CHECK_FALSE(comes(Hello{1, 1, 1}));
  CHECK_FALSE(comes(Hello{1, 0, kMaxRanks + 1}));
}

TEST_CASE("an announcement is taken at the edges of its numbers, and not beyond them") {
  CHECK(comes(head()));
  const std::vector<std::function<void(OperationHead&)>> good = {
      [](auto& h) { h.kind = OperationKind::reduceScatter; }, [](auto& h) { h.bytes = kMost; },
      [](auto& h) { h.bytesPerRank = kMost; }, [](auto& h) { h.windowOffset = kMost * kMaxRanks; }};
  for (size_t i = 0; i < good.size(); i++) {
    INFO(i);
    CHECK(comes(head(good[i])));
  }
  const std::vector<std::function<void(OperationHead&)>> bad = {
      [](auto& h) { h.kind = static_cast<OperationKind>(3); }, [](auto& h) { h.bytes = kMost + 1; },
      [](auto& h) { h.bytesPerRank = kMost + 1; }, [](auto& h) { h.windowOffset = kMost * kMaxRanks + 1; }};
  for (size_t i = 0; i < bad.size(); i++) {
    INFO(i);
    CHECK_FALSE(comes(head(bad[i])));
  }
}

TEST_CASE("a kind of operation that there is not is called unknown") {
  const auto none = decodeOperation(head([](auto& h) { h.kind = static_cast<OperationKind>(3); }).encode());
  CHECK(none.error().message().find("operation 0, unknown of 4000 bytes") != std::string::npos);
}

TEST_CASE("a group is formed if all are ready with the same settings, else the culprit is blamed") {
  const Ballot ready{true, "s", ""}, other{true, "t", ""};
  const Ballot misses{false, "", "rank 2, 3 does not answer"}, gaveUp{false, "", kAnotherGaveUp};
  const Ballot lost{false, "", "nothing was heard from it", false};
  CHECK(count({}).formed);
  CHECK(count({ready, ready}).formed);
  CHECK_FALSE(count({ready, other}).formed);
  CHECK(count({ready, other}).reason.starts_with("rank 1 has t and rank 0 has s"));
  CHECK_FALSE(count({ready, lost}).formed);
  // A rank that does not vote goes before those that miss it, and these before those that only followed.
  CHECK(count({ready, misses, lost, gaveUp}).reason == "rank 2: nothing was heard from it");
  CHECK(count({ready, gaveUp, misses}).reason == "rank 2: rank 2, 3 does not answer");
  CHECK(count({gaveUp, gaveUp, ready}).reason == std::string("rank 0: ") + kAnotherGaveUp);
  // Of two that are not ready, who gave up first is nearer to the cause.
  const Ballot late{false, "", "nothing came", true, 3000}, early{false, "", "refused", true, 2};
  CHECK(count({late, early, late}).reason == "rank 1: refused");
  CHECK(count({early, late, early}).reason == "rank 0: refused");
  // That too few have come says only that others are missing.
  const Ballot few{false, "", std::string("only 4 of 8 ranks joined a:1") + kTooFewInTime, true, 2};
  CHECK(count({few, late, few}).reason == "rank 1: nothing came");
  CHECK(count({other, misses, misses}).reason.starts_with("rank 1: "));
}

TEST_CASE("words between ranks come as they were said, whole, and of no other kind") {
  const auto ballot = [](const Bytes& bytes) { return bool(decodeBallot(bytes)); };
  const auto verdict = [](const Bytes& bytes) { return bool(decodeVerdict(bytes)); };
  const auto piece = [](const Bytes& bytes) { return bool(decodePiece(bytes)); };
  for (const bool flag : {true, false}) {
    CHECK(decodeBallot(Ballot{flag, "s", "r"}.encode())->ready == flag);
    CHECK(decodeBallot(Ballot{flag, "s", "r", true, 70'000}.encode())->afterMs == 70'000);
    CHECK(decodeVerdict(Verdict{flag, "r"}.encode())->formed == flag);
    CHECK(decodePiece(OutOfBandPiece{flag, Bytes(3)}.encode())->gaveUp == flag);
  }
  checkLength(Ballot{}.encode(), ballot);
  checkHead(Ballot{}.encode(), ballot);
  checkLength(Verdict{}.encode(), verdict);
  checkHead(Verdict{}.encode(), verdict);
  checkLength(OutOfBandPiece{false, Bytes(kPieceBytes)}.encode(), piece);
  checkHead(OutOfBandPiece{}.encode(), piece);
  CHECK_FALSE(piece(OutOfBandPiece{false, Bytes(kPieceBytes + 1)}.encode()));
  CHECK(isOutOfBand(OutOfBandPiece{}.encode()));
  CHECK_FALSE(isOutOfBand(Ballot{}.encode()));
  // A reason is cut where it is longer than a message has room for.
  CHECK(shortened(std::string(kReasonBytes, 'x')) == std::string(kReasonBytes, 'x'));
  CHECK(shortened(std::string(kReasonBytes + 1, 'x')) == std::string(kReasonBytes - 3, 'x') + "...");
}

TEST_CASE("a rank sends and receives its part of a chunk in gathers and scatters, and else all of it") {
  const auto of = [](OperationKind kind) {
    return head([kind](auto& h) { h.kind = kind, h.bytes = 35, h.bytesPerRank = 10, h.windowOffset = 5; });
  };
  const Span chunk{3, 20};  // of the window from byte 5 to 40: bytes 8 to 25 of the vector
  const auto is = [](Span span, size_t begin, size_t end) { return span.begin == begin && span.end == end; };
  CHECK(is(partOf(10, 5, 35, 0), 0, 5));
  CHECK(is(partOf(10, 5, 35, 1), 5, 15));
  CHECK(is(partOf(10, 5, 35, 3), 25, 35));
  CHECK(is(sentOf(of(OperationKind::allGather), 0, chunk), 3, 5));
  CHECK(is(sentOf(of(OperationKind::allGather), 1, chunk), 5, 15));
  CHECK(is(sentOf(of(OperationKind::allGather), 2, chunk), 15, 20));
  CHECK(sentOf(of(OperationKind::allGather), 3, chunk).bytes() == 0);
  CHECK(is(receivedOf(of(OperationKind::allGather), 1, chunk), 3, 20));
  CHECK(is(receivedOf(of(OperationKind::reduceScatter), 1, chunk), 5, 15));
  CHECK(is(sentOf(of(OperationKind::reduceScatter), 1, chunk), 3, 20));
  CHECK(is(sentOf(of(OperationKind::allReduce), 1, chunk), 3, 20));
  CHECK(is(receivedOf(of(OperationKind::allReduce), 1, chunk), 3, 20));
}

TEST_CASE("an operation that cannot be is refused, and the largest that can is not") {
  CHECK(fault([](auto&) {}).empty());
  CHECK(fault([](auto& o) { o.bytes = kMost; }).empty());
  CHECK(fault([](auto& o) { o.bytes = kMost + 4; }).find("1 TiB") != std::string::npos);
  CHECK(fault([](auto& o) { o.windowBytes = kMost + 4; }).find("1 TiB") != std::string::npos);
  CHECK(fault([](auto& o) { o.bytesPerRank = kMost + 4; }).find("1 TiB") != std::string::npos);
  CHECK(fault([](auto& o) { o.windowBytes = o.bytesPerRank = kMost; }).empty());
  CHECK(fault([](auto& o) { o.windowBytes = 401; }).find("behind the last") != std::string::npos);
  CHECK(fault([](auto& o) { o.windowOffset = 300, o.windowBytes = 100; }).empty());
  CHECK(fault([](auto& o) { o.windowOffset = 400, o.windowBytes = 0; }).empty());
  CHECK(fault([](auto& o) { o.windowOffset = 401, o.windowBytes = 0; }).find("behind") != std::string::npos);
  CHECK(fault([](auto& o) { o.windowOffset = 300, o.windowBytes = 101; }).find("behind") !=
        std::string::npos);
  CHECK(fault([](auto& o) { o.sendMemory = nullptr; }).find("own part is null") != std::string::npos);
  CHECK(fault([](auto& o) { o.sendMemory = nullptr, o.windowOffset = 200, o.windowBytes = 200; }).empty());
  const auto scatter = [](Operation& o) {
    o.kind = OperationKind::reduceScatter;
    o.receiveMemory = &memory;
    o.sendMemory = nullptr;
  };
  CHECK(fault(scatter).empty());
  const auto scattered = [&](const std::function<void(Operation&)>& change) {
    return fault([&](Operation& o) { scatter(o), change(o); });
  };
  CHECK(scattered([](auto& o) { o.receiveMemory = nullptr; }).find("null") != std::string::npos);
  CHECK(scattered([](auto& o) { o.windowBytes = 398; }).find("whole elements") != std::string::npos);
  CHECK(scattered([](auto& o) { o.bytesPerRank = 101; }).find("whole elements") != std::string::npos);
  CHECK(scattered([](auto& o) { o.windowOffset = 2, o.windowBytes = 4; }).find("whole") != std::string::npos);
  CHECK(scattered([](auto& o) { o.op = static_cast<ReduceOp>(77); }).find("no such") != std::string::npos);
  const auto reduces = [](Operation& o) { o.kind = OperationKind::allReduce, o.sendMemory = nullptr; };
  CHECK(fault([&](auto& o) { reduces(o), o.bytes = 8; }).empty());
  CHECK(fault([&](auto& o) { reduces(o), o.bytes = 6; }).find("whole elements") != std::string::npos);
  CHECK(fault([&](auto& o) { reduces(o), o.windowBytes = 4000; }).empty());
  CHECK(fault([&](auto& o) { reduces(o), o.op = static_cast<ReduceOp>(77); }).find("no such") !=
        std::string::npos);
}

TEST_CASE("a plan says who reduces what, and who has it in the end") {
  const auto is = [](const Part& part, size_t offset, size_t bytes) {
    return part.offset == offset && part.bytes == bytes;
  };
  Operation operation;
  operation.bytes = 2048;
  Plan plan;
  makePlan(operation, 1, 3, 2048, &plan);
  CHECK((plan.whole && plan.reduces && !plan.distributes));
  CHECK((is(plan.give[2], 0, 2048) && is(plan.own, 0, 2048) && plan.take[0].bytes == 0));
  // Shares of whole pairs of cache lines: 2048 are 768, 768 and the rest.
  makePlan(operation, 1, 3, 2047, &plan);
  CHECK((!plan.whole && plan.reduces && plan.distributes && plan.ownAt == 768));
  CHECK((is(plan.give[0], 0, 768) && is(plan.own, 768, 768) && is(plan.give[2], 1536, 512)));
  CHECK((is(plan.take[0], 0, 768) && is(plan.take[2], 1536, 512)));
  operation.bytes = 385;
  makePlan(operation, 0, 3, 0, &plan);
  CHECK((is(plan.own, 0, 256) && is(plan.give[1], 256, 129) && plan.give[2].bytes == 0));
  operation.kind = OperationKind::reduceScatter;
  operation.bytesPerRank = 100;
  operation.windowOffset = 50;
  operation.windowBytes = 200;
  makePlan(operation, 1, 3, 0, &plan);
  CHECK((plan.reduces && !plan.distributes && !plan.whole && plan.ownAt == 0));
  CHECK((is(plan.give[0], 0, 50) && is(plan.own, 50, 100) && is(plan.give[2], 150, 50)));
  CHECK(receivedBytes(operation, 2) == 50);
  CHECK(receivedBytes(operation, 1) == 100);
  operation.kind = OperationKind::allGather;
  makePlan(operation, 1, 3, 0, &plan);
  CHECK((!plan.reduces && plan.distributes && plan.give[0].bytes == 0));
  CHECK((is(plan.own, 0, 100) && plan.ownAt == 50 && is(plan.take[2], 150, 50)));
  CHECK(receivedBytes(operation, 2) == 200);
  operation.kind = OperationKind::allReduce;
  CHECK(receivedBytes(operation, 2) == 385);
}

TEST_CASE("a rank's messages end where its daemon's chunks do") {
  Operation operation;
  operation.kind = OperationKind::allGather;
  operation.bytesPerRank = 100;
  operation.windowOffset = 50;
  operation.windowBytes = 200;
  Plan plan;
  makeTreePlan(operation, 1, 64, &plan);  // bytes 50 to 150 of the window
  CHECK((plan.give[0].bytes == 100 && plan.take[0].bytes == 200));
  CHECK(plan.give[0].next(0, 64) == 14);
  CHECK(plan.give[0].next(14, 64) == 64);
  CHECK(plan.give[0].next(78, 64) == 22);
  operation.kind = OperationKind::reduceScatter;
  makeTreePlan(operation, 1, 64, &plan);
  CHECK((plan.give[0].bytes == 200 && plan.take[0].bytes == 100 && plan.take[0].next(0, 64) == 14));
}

TEST_CASE("the memory to reduce in is bounded, whatever the size of a group and of its chunks") {
  for (const size_t ranks : {2, 64, 128, 4096}) {
    for (const size_t piece : {4096, 65536, 1 << 24}) {
      const auto blocks = PeersBackend::blocksOf(ranks, {.pieceBytes = piece});
      INFO(ranks << " ranks, pieces of " << piece);
      CHECK(blocks.most * BlockPool::blockBytes(ranks, blocks.pieceBytes) <= size_t{256} << 20);
      CHECK((blocks.pieceBytes % kChunkAlign == 0 && blocks.most >= 2 * blocks.kept));
    }
  }
  CHECK(PeersBackend::blocksOf(64, {}).pieceBytes == 65536);
}
