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
  greeting,
  request,
  answer,
  status,
  decoders
};

constexpr Nonce kNonce{};

const Key128& key() {
  static const Key128 one = keyOf("a secret");
  return one;
}

// The messages that carry a proof, with the right one behind them, so that what follows it is reached.
Bytes proven(std::span<const std::byte> body) {
  Bytes seen(kNonce.begin(), kNonce.end());
  seen.insert(seen.end(), body.begin(), body.end());
  const Tag128 tag = sipHash128(key(), seen);
  Bytes out(body.begin(), body.end());
  out.insert(out.end(), tag.begin(), tag.end());
  return out;
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
    case greeting:
      reasoned(decodeGreeting(body));
      break;
    case request:
      reasoned(decodeJoinRequest(body, key(), kNonce));
      reasoned(decodeJoinRequest(proven(body), key(), kNonce));
      break;
    case answer:
      reasoned(decodeJoinAnswer(body, key(), kNonce));
      reasoned(decodeJoinAnswer(proven(body), key(), kNonce));
      break;
    default:
      reasoned(decodeStatusRequest(proven(body), key(), kNonce));
  }
  return 0;
}

std::vector<fuzz::Input> fuzz::seeds() {
  // Without their proof, which is put behind them anew.
  const auto bare = [](Bytes sealed) {
    sealed.resize(sealed.size() - sizeof(Tag128));
    return sealed;
  };
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
          choose(greeting, Greeting{}.encode()),
          choose(request, bare(join.encode(key(), kNonce))),
          choose(answer, bare(JoinAnswer{true, "", {}}.encode(key(), kNonce))),
          choose(status, bare(encodeStatusRequest(1, key(), kNonce)))};
}
