// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/control/wire.h"

#include <algorithm>
#include <cstring>

#include "src/base/log.h"

// Encoding and decoding; the layouts are in docs/wire.md.
namespace weft::control {

namespace {

// Limits on counts and texts, checked before memory is used for them.
constexpr uint32_t kLinkMagic = 0x4c544657;  // "WFTL"
constexpr size_t kMaxAddresses = 32;
constexpr size_t kMaxFields = 256;
constexpr size_t kMaxErrorText = 1024;

std::string cutText(const std::string& text) {
  return text.substr(0, kMaxErrorText);
}

void putFingerprint(ByteWriter& writer, const Fingerprint& fingerprint) {
  writer.put(static_cast<uint16_t>(fingerprint.size()));
  for (const auto& field : fingerprint)
    writer.text(field.name).text(field.value).put(uint8_t{field.mustMatch});
}

Fingerprint getFingerprint(ByteReader& reader) {
  Fingerprint out;
  const size_t count = std::min<size_t>(reader.get<uint16_t>(), kMaxFields);
  for (size_t i = 0; i < count && !reader.failed(); i++) {
    FingerprintField field;
    field.name = reader.text();
    field.value = reader.text();
    field.mustMatch = reader.get<uint8_t>() != 0;
    out.push_back(std::move(field));
  }
  return out;
}

const FingerprintField* find(const Fingerprint& in, const std::string& name) {
  const auto it = std::find_if(in.begin(), in.end(), [&](const auto& field) { return field.name == name; });
  return it == in.end() ? nullptr : &*it;
}

Error differs(const std::string& peerName, const std::string& field, const std::string& ours,
              const std::string& theirs) {
  return Error(Code::config, "connecting to " + peerName,
               "the two processes do not fit: " + field + " is " + ours + " here and " + theirs +
                   " there; make them equal on every node");
}

}  // namespace

Bytes encodePrologue(const Hello& hello) {
  ByteWriter writer;
  writer.put(kLinkMagic).put(hello.version).put(hello.kind).put(hello.flags);
  writer.raw(hello.from).raw(hello.to).put(hello.listener).put(hello.epoch);
  return writer.take();
}

Bytes encodeHello(const Hello& hello) {
  ByteWriter writer;
  return writer.raw(encodePrologue(hello)).raw(hello.noise).take();
}

std::optional<uint16_t> versionIn(std::span<const std::byte> start) {
  ByteReader reader(start);
  if (reader.get<uint32_t>() != kLinkMagic) return std::nullopt;
  const auto version = reader.get<uint16_t>();
  return reader.failed() ? std::nullopt : std::optional(version);
}

// A process of another version may say anything behind its version, so nothing else is read of its hello.
std::optional<Hello> decodeHello(std::span<const std::byte> in) {
  const auto version = versionIn(in);
  if (!version) return std::nullopt;
  Hello hello;
  hello.version = *version;
  if (hello.version != kWireVersion) return hello;
  ByteReader reader(in.subspan(sizeof kLinkMagic + sizeof hello.version));
  hello.kind = reader.get<HelloKind>();
  hello.flags = reader.get<uint8_t>();
  reader.fill(hello.from);
  reader.fill(hello.to);
  hello.listener = reader.get<uint32_t>();
  hello.epoch = reader.get<uint64_t>();
  reader.fill(hello.noise);
  const bool known =
      (hello.kind == HelloKind::open || hello.kind == HelloKind::resume) && hello.flags <= kAllHelloFlags;
  return reader.done() && known ? std::optional(hello) : std::nullopt;
}

Bytes encodeChallenge(const Challenge& challenge) {
  ByteWriter writer;
  writer.put(kLinkMagic).put(challenge.version).put(challenge.answer).put(uint8_t{0});
  if (challenge.answer == Answer::proof) writer.raw(challenge.noise);
  return writer.take();
}

std::optional<Answer> answerIn(std::span<const std::byte> start) {
  const auto version = versionIn(start);
  if (!version || start.size() < kStartBytes) return std::nullopt;
  if (*version != kWireVersion) return Answer::otherVersion;
  ByteReader reader(start.subspan(sizeof kLinkMagic + sizeof *version));
  const auto answer = reader.get<Answer>();
  const bool known = answer >= Answer::proof && answer <= Answer::otherEncryption;
  return known && reader.get<uint8_t>() == 0 ? std::optional(answer) : std::nullopt;
}

std::optional<Challenge> decodeChallenge(std::span<const std::byte> in) {
  const auto answer = answerIn(in);
  if (!answer) return std::nullopt;
  Challenge challenge;
  challenge.version = *versionIn(in);
  challenge.answer = *answer;
  ByteReader reader(in.subspan(kStartBytes));
  if (challenge.answer == Answer::otherVersion) return challenge;
  if (challenge.answer == Answer::proof) reader.fill(challenge.noise);
  return reader.done() ? std::optional(challenge) : std::nullopt;
}

Key256 linkKeyOf(const NoiseKeys& keys) {
  return derivedKey({}, keys.exporter, "weft link key");
}

void encodeFrame(const FrameHeader& header, std::span<const std::byte> body, Bytes& out) {
  ByteWriter writer;
  writer.put(static_cast<uint32_t>(body.size())).put(header.type).put(uint16_t{0});
  writer.put(header.sequence).put(header.received);
  const size_t at = out.size();
  out.resize(at + kFrameHeaderBytes + body.size());
  std::memcpy(out.data() + at, writer.bytes().data(), kFrameHeaderBytes);
  if (!body.empty()) std::memcpy(out.data() + at + kFrameHeaderBytes, body.data(), body.size());
}

// A reserved field that is not zero belongs to a later version, which would have another version number:
// nonsense.
std::optional<FrameHeader> decodeFrameHeader(std::span<const std::byte> in) {
  ByteReader reader(in);
  FrameHeader header;
  header.length = reader.get<uint32_t>();
  header.type = reader.get<uint16_t>();
  const auto reserved = reader.get<uint16_t>();
  header.sequence = reader.get<uint64_t>();
  header.received = reader.get<uint64_t>();
  const bool known = (header.type >= static_cast<uint16_t>(FrameType::info) &&
                      header.type <= static_cast<uint16_t>(FrameType::goodbye)) ||
                     header.type >= kFirstUserType;
  if (!reader.done() || !known || reserved != 0 || header.length > kMaxFrameBody) return std::nullopt;
  return header;
}

Bytes encodeInfo(const Info& info) {
  ByteWriter writer;
  writer.put(info.epoch).put(info.received).text(info.host).put(info.pid);
  const size_t count = std::min(info.addresses.size(), kMaxAddresses);
  writer.put(count == 0 ? uint16_t{0} : info.addresses.front().port()).put(static_cast<uint16_t>(count));
  for (size_t i = 0; i < count; i++) putAddress(writer, info.addresses[i]);
  putFingerprint(writer, info.fingerprint);
  return writer.take();
}

// Counts are checked before memory is reserved for them: a stranger's number must cost no memory.
std::optional<Info> decodeInfo(std::span<const std::byte> in) {
  ByteReader reader(in);
  Info info;
  info.epoch = reader.get<uint64_t>();
  info.received = reader.get<uint64_t>();
  info.host = reader.text();
  info.pid = reader.get<uint32_t>();
  const auto port = reader.get<uint16_t>();
  const auto count = reader.get<uint16_t>();
  if (count == 0 || count > kMaxAddresses) return std::nullopt;
  for (uint16_t i = 0; i < count; i++) {
    auto address = getAddress(reader, port);
    if (!address) return std::nullopt;
    info.addresses.push_back(*address);
  }
  info.fingerprint = getFingerprint(reader);
  return reader.done() ? std::optional(std::move(info)) : std::nullopt;
}

Bytes encodeCall(const CallBody& call) {
  ByteWriter writer;
  writer.put(call.id).put(call.listener).raw(call.proof).raw(call.body);
  return writer.take();
}

std::optional<CallBody> decodeCall(std::span<const std::byte> in) {
  ByteReader reader(in);
  CallBody call;
  call.id = reader.get<uint64_t>();
  call.listener = reader.get<uint32_t>();
  reader.fill(call.proof);
  call.body = reader.raw(reader.left());
  return reader.failed() ? std::nullopt : std::optional(call);
}

Tag128 callTag(const Key256& key, const Key256& binding, const Incarnation& caller, const CallBody& call) {
  ByteWriter writer;
  writer.text("weft call").raw(binding).raw(caller);
  writer.put(call.id).put(call.listener).raw(call.body);
  return shortHmacOf(key, writer.bytes());
}

Bytes encodeReply(const ReplyBody& reply) {
  ByteWriter writer;
  writer.put(reply.id).raw(reply.body);
  return writer.take();
}

std::optional<ReplyBody> decodeReply(std::span<const std::byte> in) {
  ByteReader reader(in);
  ReplyBody reply;
  reply.id = reader.get<uint64_t>();
  reply.body = reader.raw(reader.left());
  return reader.failed() ? std::nullopt : std::optional(reply);
}

Bytes encodeRefuse(const RefuseBody& refuse) {
  ByteWriter writer;
  writer.put(refuse.id).put(refuse.why.code());
  writer.text(cutText(refuse.why.operation())).text(cutText(refuse.why.detail()));
  return writer.take();
}

// The text of an error is the peer's word and reaches people as it is. The frame that carries it bounds its
// length.
std::optional<RefuseBody> decodeRefuse(std::span<const std::byte> in) {
  ByteReader reader(in);
  RefuseBody refuse;
  refuse.id = reader.get<uint64_t>();
  const auto code = reader.get<Code>();
  std::string operation = reader.text();
  std::string detail = reader.text();
  if (!reader.done() || code > Code::internal) return std::nullopt;
  refuse.why = Error(code, std::move(operation), std::move(detail));
  return refuse;
}

// A field needs to match where one side demands it. A field that the other side does not know counts as
// different.
std::optional<Error> compareFingerprints(const Fingerprint& ours, const Fingerprint& theirs,
                                         const std::string& peerName) {
  for (const auto& field : ours) {
    const FingerprintField* other = find(theirs, field.name);
    if (!field.mustMatch && !(other && other->mustMatch)) continue;
    if (!other) return differs(peerName, field.name, "\"" + field.value + "\"", "unknown");
    if (other->value == field.value || other->value == kFitsAll || field.value == kFitsAll) continue;
    return differs(peerName, field.name, "\"" + field.value + "\"", "\"" + other->value + "\"");
  }
  for (const auto& field : theirs) {
    if (field.mustMatch && !find(ours, field.name)) {
      return differs(peerName, field.name, "unknown", "\"" + field.value + "\"");
    }
  }
  return std::nullopt;
}

}  // namespace weft::control
