// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/messages.h"
#include "tests/fuzz/target.h"

// What a peer's engine says over the control link: connecting, memory, lanes, closing.
using namespace weft;
using namespace weft::core;

namespace {

enum Decoder : uint8_t {
  request,
  reply,
  open,
  plain,
  failed,
  probe,
  notice,
  lane,
  retired,
  missing,
  lines,
  sums,
  opened,
  shut,
  decoders
};

template <class Message>
void tryBody(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  Message message;
  if (!decodeBody(&in, &message)) return;
  ByteWriter once, twice;
  encodeBody(&once, message);
  const Bytes encoded = once.take();
  ByteReader again(encoded);
  Message copy;
  fuzz::demand(decodeBody(&again, &copy), "what was decoded can be encoded and decoded");
  encodeBody(&twice, copy);
  fuzz::demand(twice.take() == encoded, "and stays the same");
}

template <class Message>
void tryWhole(std::span<const std::byte> bytes) {
  const auto message = Message::decode(bytes);
  if (!message) return fuzz::demand(!message.error().message().empty(), "a refusal says why");
  fuzz::demand(static_cast<bool>(Message::decode(message->encode())),
               "what was decoded can be encoded and decoded");
}

template <class Message>
fuzz::Input seedOf(Decoder which, const Message& message) {
  ByteWriter out;
  encodeBody(&out, message);
  return fuzz::choose(which, out.take());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto body = fuzz::bytesOf(data, size).subspan(1);
  switch (data[0] % decoders) {
    case request:
      tryWhole<ConnectRequest>(body);
      break;
    case reply:
      tryWhole<ConnectReply>(body);
      break;
    case open:
      tryBody<OpenMessage>(body);
      break;
    case plain:
      tryBody<CommMessage>(body);
      break;
    case failed:
      tryBody<FailedMessage>(body);
      break;
    case probe:
      tryBody<ProbeMessage>(body);
      break;
    case lane:
      tryBody<LaneMessage>(body);
      break;
    case retired:
      tryBody<RetiredMessage>(body);
      break;
    case missing:
      tryBody<MissingMessage>(body);
      break;
    case sums:
      tryBody<SumsMessage>(body);
      break;
    case opened:
      tryBody<OpenMemoryMessage>(body);
      break;
    case shut:
      tryBody<ShutMemoryMessage>(body);
      break;
    case lines:
      tryBody<CtsMessage>(body);
      break;
    default:
      tryBody<MemoryNotice>(body);
  }
  return 0;
}

std::vector<fuzz::Input> fuzz::seeds() {
  PeeringInfo half;
  half.rails = 2;
  half.deviceName = "eth0+eth1";
  half.laneAddresses = {Bytes(32, std::byte{1}), Bytes(32, std::byte{2})};
  half.memory.railBlobs = {Bytes(16, std::byte{3}), Bytes(16, std::byte{4})};
  OpenMessage opening;
  opening.half = half;
  opening.ringMemory = half.memory;
  return {choose(request, ConnectRequest{3, 2, "no memory"}.encode()),
          choose(reply, ConnectReply{5, 1 << 20, half}.encode()),
          seedOf(open, opening),
          seedOf(plain, CommMessage{1, 2}),
          seedOf(failed, FailedMessage{1, "the lane broke"}),
          seedOf(probe, ProbeMessage{}),
          seedOf(notice, half.memory),
          seedOf(lane, LaneMessage{1, 2, "the rail broke", Bytes(32, std::byte{5})}),
          seedOf(retired, RetiredMessage{1, 2, true, {{3, 4, 5, 6, 7}, {0, 70, 0, 0, 1}}}),
          seedOf(missing, MissingMessage{1, 2, 0, {1, 0, 3}}),
          seedOf(lines, CtsMessage{1, {{2, Cts{}}}}),
          seedOf(sums, SumsMessage{1, {PayloadSum::of(1, 2, Bytes(10'000, std::byte{7}))}}),
          seedOf(opened, OpenMemoryMessage{1, 2, 3, 4, 5}),
          seedOf(shut, ShutMemoryMessage{1, 2, 3, 4})};
}
