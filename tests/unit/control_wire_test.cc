// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <arpa/inet.h>

#include "src/base/random.h"
#include "src/control/frame_queue.h"
#include "src/control/frame_seal.h"
#include "src/control/wire.h"
#include "tests/support/catch.h"

using namespace weft;
using namespace weft::control;

namespace {

Info sampleInfo() {
  Info info;
  info.epoch = 5;
  info.received = 9;
  info.host = "node7";
  info.pid = 4711;
  SocketAddress address;
  address.storage.ss_family = AF_INET;
  address.length = sizeof(sockaddr_in);
  inet_pton(AF_INET, "192.0.2.7", &reinterpret_cast<sockaddr_in*>(&address.storage)->sin_addr);
  address.setPort(99);
  info.addresses = {address};
  info.fingerprint = {{"provider", "tcp", true}, {"note", "x", false}};
  return info;
}

std::string compared(const Fingerprint& ours, const Fingerprint& theirs) {
  const auto error = compareFingerprints(ours, theirs, "node7");
  return error ? error->message() : "";
}

}  // namespace

TEST_CASE("a process that has no part in a field fits any other") {
  const Fingerprint rank{{"tuner", "p5", true}}, daemon{{"tuner", kFitsAll, true}}, none{};
  CHECK_FALSE(compareFingerprints(rank, daemon, "node7"));
  CHECK_FALSE(compareFingerprints(daemon, rank, "node7"));
  CHECK(compareFingerprints(daemon, none, "node7"));
}

TEST_CASE("handshake messages come back as they went, and no truncation does") {
  Hello hello;
  hello.kind = HelloKind::resume;
  fillRandom(hello.from);
  fillRandom(hello.noise);
  hello.flags = kHasJobSecret;
  hello.listener = 3;
  hello.epoch = 1ull << 40;
  const Bytes bytes = encodeHello(hello);
  REQUIRE(bytes.size() == kHelloBytes);
  const auto back = decodeHello(bytes);
  REQUIRE(back);
  CHECK(back->from == hello.from);
  CHECK(back->noise == hello.noise);
  CHECK(back->flags == kHasJobSecret);
  CHECK(back->epoch == hello.epoch);
  for (size_t n = 0; n < bytes.size(); n++) CHECK_FALSE(decodeHello(std::span(bytes).first(n)));

  Challenge challenge;
  fillRandom(challenge.noise);
  const Bytes answer = encodeChallenge(challenge);
  REQUIRE(answer.size() == kChallengeBytes);
  CHECK(decodeChallenge(answer)->noise == challenge.noise);
  CHECK(answerIn(std::span(answer).first(kStartBytes)) == Answer::proof);
  challenge.answer = Answer::listenerClosed;
  CHECK(encodeChallenge(challenge).size() == kStartBytes);
  CHECK(decodeChallenge(encodeChallenge(challenge))->answer == Answer::listenerClosed);
  for (size_t n = 0; n < answer.size(); n++) CHECK_FALSE(decodeChallenge(std::span(answer).first(n)));
}

TEST_CASE("infos come back as they went, and no truncation does") {
  const Bytes bytes = encodeInfo(sampleInfo());
  const auto back = decodeInfo(bytes);
  REQUIRE(back);
  CHECK(back->host == "node7");
  CHECK(back->pid == 4711);
  CHECK(back->received == 9);
  CHECK(back->addresses.at(0).text() == "192.0.2.7:99");
  CHECK(back->fingerprint.at(1).name == "note");
  CHECK_FALSE(back->fingerprint.at(1).mustMatch);
  for (size_t n = 0; n < bytes.size(); n++) CHECK_FALSE(decodeInfo(std::span(bytes).first(n)));
}

TEST_CASE("decoders take any bytes") {
  SeededRandom random(7);
  for (int i = 0; i < 20000; i++) {
    Bytes bytes = i % 2 ? encodeInfo(sampleInfo()) : Bytes(random.below(200));
    for (uint64_t n = 0; n < (i % 2 ? 3 : bytes.size()); n++) {
      if (!bytes.empty()) bytes[random.below(bytes.size())] = std::byte(random.next());
    }
    (void)decodeHello(bytes);
    (void)decodeChallenge(bytes);
    (void)decodeInfo(bytes);
    (void)decodeCall(bytes);
    (void)decodeReply(bytes);
    (void)decodeRefuse(bytes);
    const auto header = decodeFrameHeader(bytes);
    CHECK((!header || header->length <= kMaxFrameBody));
  }
}

TEST_CASE("frame headers with an unknown type or an impossible length are none") {
  FrameHeader header;
  header.type = 16;
  Bytes bytes;
  encodeFrame(header, Bytes(10), bytes);
  const auto head = std::span(bytes).first(kFrameHeaderBytes);
  REQUIRE(decodeFrameHeader(head));
  CHECK(decodeFrameHeader(head)->length == 10);
  bytes[4] = std::byte{15};
  CHECK_FALSE(decodeFrameHeader(head));
  bytes[4] = std::byte{16};
  bytes[3] = std::byte{1};
  CHECK_FALSE(decodeFrameHeader(head));
}

TEST_CASE("the proof of a call depends on its link, its direction and all that it says") {
  Key256 key{}, binding{};
  Incarnation caller{};
  const Bytes body(4, std::byte{1});
  CallBody call{1, 2, {}, body};
  const Tag128 tag = callTag(key, binding, caller, call);
  CHECK(tag == callTag(key, binding, caller, call));
  binding[3] = std::byte{1};
  CHECK(tag != callTag(key, binding, caller, call));
  binding = {};
  caller[0] = std::byte{1};
  CHECK(tag != callTag(key, binding, caller, call));
  caller = {};
  key[31] = std::byte{1};
  CHECK(tag != callTag(key, binding, caller, call));
  key = {};
  call.listener = 3;
  CHECK(tag != callTag(key, binding, caller, call));
}

TEST_CASE("a hello's flags, listener, epoch and names are in the prologue that its proof covers") {
  Hello hello;
  const Bytes before = encodePrologue(hello);
  CHECK(before.size() == kPrologueBytes);
  const auto changes = [&](auto change) {
    Hello other = hello;
    change(other);
    return encodePrologue(other) != before;
  };
  CHECK(changes([](Hello& one) { one.flags = kFramesInClear; }));
  CHECK(changes([](Hello& one) { one.kind = HelloKind::resume; }));
  CHECK(changes([](Hello& one) { one.listener = 1; }));
  CHECK(changes([](Hello& one) { one.epoch = 1; }));
  CHECK(changes([](Hello& one) { one.from[15] = std::byte{1}; }));
  CHECK(changes([](Hello& one) { one.to[0] = std::byte{1}; }));
}

TEST_CASE("a sealed frame opens whole, once and in its order; in clear it is as it was") {
  NoiseKeys keys, there;
  fillRandom(keys.send);
  fillRandom(keys.receive);
  there.send = keys.receive;
  there.receive = keys.send;
  const Bytes body(100, std::byte{9});
  FrameHeader header;
  header.type = 20;
  header.sequence = 3;
  const bool inClear = GENERATE(false, true);
  FrameSeal out(keys, inClear), in(there, inClear);
  Bytes first, second;
  out.append(header, body, first);
  out.append(header, {}, second);
  REQUIRE(bodyLengthOf(std::span(first).first(kLengthBytes)) == body.size());
  REQUIRE(first.size() == in.recordBytes(body.size()));
  if (!inClear) {
    CHECK(std::search(first.begin(), first.end(), body.begin(), body.begin() + 8) == first.end());
    for (size_t at = 0; at < first.size(); at++) {
      Bytes changed = first;
      changed[at] ^= std::byte{1};
      CHECK_FALSE(in.open(changed));
    }
    Bytes early = second;
    CHECK_FALSE(in.open(early));
  }
  const Bytes again = first;
  const auto frame = in.open(first);
  REQUIRE(frame);
  CHECK(decodeFrameHeader(frame->first(kFrameHeaderBytes))->sequence == 3);
  CHECK(std::ranges::equal(frame->subspan(kFrameHeaderBytes), body));
  Bytes copy = again;
  CHECK(in.open(copy).has_value() == inClear);
  CHECK(in.open(second));
}

TEST_CASE("fingerprints differ by field, and only where they must match") {
  CHECK(compared({{"a", "1", true}}, {{"a", "1", true}}).empty());
  CHECK(compared({{"a", "1", false}}, {{"a", "2", false}}).empty());
  CHECK(compared({{"a", "1", false}}, {}).empty());
  CHECK(compared({{"a", "1", true}}, {{"a", "2", true}}).find("a is \"1\" here and \"2\" there") !=
        std::string::npos);
  CHECK(compared({{"a", "1", false}}, {{"a", "2", true}}).find("a is") != std::string::npos);
  CHECK(compared({{"a", "1", true}}, {}).find("unknown there") != std::string::npos);
  CHECK(compared({}, {{"a", "1", true}}).find("unknown here") != std::string::npos);
}

TEST_CASE("frames are sent again from the first that was not acknowledged, and taken once") {
  FrameQueue out, in;
  for (uint16_t i = 0; i < 5; i++) out.push(static_cast<uint16_t>(16 + i), {});
  for (int i = 0; i < 3; i++) {
    CHECK(in.arrive(out.nextUnsent()->sequence) == FrameQueue::Arrival::fresh);
    out.markSent();
  }
  REQUIRE(out.acknowledge(2));
  CHECK(out.unacknowledged() == 3);
  out.rewind();
  CHECK(out.nextUnsent()->sequence == 3);
  CHECK(in.arrive(3) == FrameQueue::Arrival::duplicate);
  CHECK(in.arrive(5) == FrameQueue::Arrival::gap);
  CHECK(in.arrive(4) == FrameQueue::Arrival::fresh);
  CHECK_FALSE(out.acknowledge(6));
  CHECK(out.acknowledge(5));
  CHECK(out.nextUnsent() == nullptr);
}
