// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/crypto/noise.h"
#include "src/control/frame_seal.h"
#include "src/control/wire.h"
#include "tests/fuzz/target.h"

// What strangers and peers send on a control link's port.
using namespace weft;
using namespace weft::control;

namespace {

enum Decoder : uint8_t { hello, challenge, header, info, call, reply, refuse, noise, record, decoders };

// What decodes and can be encoded again decodes to the same bytes.
template <class Decoded, class Encode, class Decode>
void roundTrip(const Decoded& decoded, Encode encode, Decode decode, const char* what) {
  if (!decoded) return;
  const Bytes bytes = encode(*decoded);
  const auto again = decode(bytes);
  fuzz::demand(again.has_value() && encode(*again) == bytes, what);
}

// No input is a message of who has the secret.
void hearNoise(std::span<const std::byte> body) {
  Key256 secret{};
  secret.fill(std::byte{3});
  NoiseHandshake acceptor(NoiseHandshake::Role::acceptor, {}, secret);
  fuzz::demand(!acceptor.hear(body), "a stranger's message is not believed");
  NoiseHandshake dialler(NoiseHandshake::Role::dialler, {}, secret);
  (void)dialler.say();
  fuzz::demand(!dialler.hear(body), "a stranger's answer is not believed");
}

void openRecord(std::span<const std::byte> body) {
  if (body.size() < kLengthBytes || !bodyLengthOf(body.first(kLengthBytes))) return;
  NoiseKeys keys;
  keys.receive.fill(std::byte{5});
  Bytes bytes(body.begin(), body.end());
  fuzz::demand(!FrameSeal(keys, false).open(bytes), "a stranger's record does not open");
  const auto frame = FrameSeal(keys, true).open(bytes);
  if (frame && frame->size() >= kFrameHeaderBytes) (void)decodeFrameHeader(frame->first(kFrameHeaderBytes));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto body = fuzz::bytesOf(data, size).subspan(1);
  switch (data[0] % decoders) {
    case hello: {
      const auto decoded = decodeHello(body);
      if (decoded && decoded->version == kWireVersion)
        roundTrip(decoded, encodeHello, decodeHello, "a hello stays the same");
      break;
    }
    case challenge: {
      const auto decoded = decodeChallenge(body);
      if (decoded && decoded->version == kWireVersion)
        roundTrip(decoded, encodeChallenge, decodeChallenge, "a challenge stays the same");
      break;
    }
    case header:
      if (const auto decoded = decodeFrameHeader(body))
        fuzz::demand(decoded->length <= kMaxFrameBody, "no frame is longer than the longest");
      break;
    case info:
      roundTrip(decodeInfo(body), encodeInfo, decodeInfo, "an info stays the same");
      break;
    case call:
      roundTrip(decodeCall(body), encodeCall, decodeCall, "a call stays the same");
      break;
    case reply:
      roundTrip(decodeReply(body), encodeReply, decodeReply, "a reply stays the same");
      break;
    case noise:
      hearNoise(body);
      break;
    case record:
      openRecord(body);
      break;
    default:
      if (const auto decoded = decodeRefuse(body)) (void)decoded->why.message();
  }
  return 0;
}

std::vector<fuzz::Input> fuzz::seeds() {
  const Bytes payload(40, std::byte{7});
  Info who;
  who.host = "node7";
  who.pid = 4711;
  who.fingerprint = {{"plugin", "0.1.0", true}, {"provider", "ofi:tcp", true}};
  FrameHeader frame;
  frame.length = 12;
  frame.type = static_cast<uint16_t>(FrameType::ping);
  Bytes framed;
  encodeFrame(frame, std::span(payload).first(12), framed);
  return {choose(hello, encodeHello({})),
          choose(challenge, encodeChallenge({})),
          choose(header, framed),
          choose(info, encodeInfo(who)),
          choose(noise, Bytes(kNoiseBytes, std::byte{9})),
          choose(record, framed),
          choose(call, encodeCall({1, 2, {}, payload})),
          choose(reply, encodeReply({1, payload})),
          choose(refuse, encodeRefuse({1, Error(Code::remote, "connecting", "no such listener")}))};
}
