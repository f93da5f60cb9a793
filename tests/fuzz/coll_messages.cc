// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/join.h"
#include "tests/fuzz/target.h"

// What ranks of a group and aggregation daemons say to each other.
using namespace weft;
using namespace weft::coll;

namespace {

enum Decoder : uint8_t {
  hello,
  ballot,
  verdict,
  setUp,
  operation,
  opening,
  request,
  answer,
  status,
  record,
  decoders
};

// What strangers send to a daemon.
void tryStranger(std::span<const std::byte> body) {
  static const Key256 key = joinKeyOf({}, "the secret of the daemon");
  const auto met = meetRank(body, key);
  fuzz::demand(!met, "a stranger's message is not believed");
  fuzz::demand(!met.error().message().empty(), "a refusal says why");
}

void tryRecord(std::span<const std::byte> body) {
  if (body.size() < kLengthBytes) return;
  const auto rest = restOf(body.first(kLengthBytes));
  if (rest) fuzz::demand(*rest <= kMessageBytes + kSealBytes, "no message is longer than the longest");
  NoiseKeys keys;
  keys.receive.fill(std::byte{5});
  fuzz::demand(!JoinSeal(keys).open(body.subspan(kLengthBytes)), "a stranger's message does not open");
}

template <class Message>
void reasoned(const Result<Message>& decoded) {
  fuzz::demand(decoded || !decoded.error().message().empty(), "a refusal says why");
}

void tryOperation(std::span<const std::byte> body) {
  const auto decoded = decodeOperation(body);
  reasoned(decoded);
  if (!decoded) return;
  const auto again = decodeOperation(decoded->encode());
  fuzz::demand(again && *again == *decoded, "an operation stays the same");
  fuzz::demand(!describe(*decoded).empty(), "and can be described");
  for (const uint32_t rank : {0u, 1u, 4095u}) {
    const Span chunk{0, std::min<size_t>(decoded->bytes, 65536)};
    for (const Span piece : {sentOf(*decoded, rank, chunk), receivedOf(*decoded, rank, chunk)})
      fuzz::demand(piece.begin <= piece.end && piece.end <= std::max(chunk.end, piece.begin),
                   "pieces lie in the chunk");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto body = fuzz::bytesOf(data, size).subspan(1);
  switch (data[0] % decoders) {
    case hello:
      reasoned(decodeHello(body));
      break;
    case ballot:
      reasoned(decodeBallot(body));
      break;
    case verdict:
      reasoned(decodeVerdict(body));
      break;
    case setUp:
      reasoned(decodePiece(body));
      break;
    case operation:
      tryOperation(body);
      break;
    case opening:
      tryStranger(body);
      break;
    case request:
      reasoned(decodeJoinRequest(body));
      break;
    case answer:
      reasoned(decodeJoinAnswer(body));
      break;
    case record:
      tryRecord(body);
      break;
    default:
      reasoned(decodeStatusRequest(body));
  }
  return 0;
}

std::vector<fuzz::Input> fuzz::seeds() {
  const Bytes start = ByteWriter()
                          .put(uint32_t{56})
                          .put(kMagic)
                          .put(kVersion)
                          .put(uint16_t{33})
                          .raw(Bytes(kNoiseBytes))
                          .take();
  OperationHead head;
  head.kind = OperationKind::allGather;
  head.bytes = 100;
  head.bytesPerRank = 60;
  JoinRequest join;
  join.ranks = 4;
  join.chunkBytes = 65536;
  join.name = "rank 0";
  return {choose(hello, Hello{1, 0, 2}.encode()),
          choose(ballot, Ballot{true, "WEFT_COLLNET=peers", ""}.encode()),
          choose(verdict, Verdict{false, "rank 1: no"}.encode()),
          choose(setUp, OutOfBandPiece{false, Bytes(9)}.encode()),
          choose(operation, head.encode()),
          choose(opening, start),
          choose(request, join.encode()),
          choose(answer, JoinAnswer{true, "", {}}.encode()),
          choose(status, encodeStatusRequest(1)),
          choose(record, JoinSeal(NoiseKeys{}).close(encodeStatusRequest(1)))};
}
