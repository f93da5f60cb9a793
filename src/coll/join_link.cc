// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/join_link.h"

#include "src/base/log.h"

// The handshake of a rank and a daemon, and their sealed messages.
namespace weft::coll {

namespace {

constexpr const char* kOperation = "joining an aggregation daemon";
constexpr const char* kPurpose = "weft aggd join";

// Who speaks, in a start. The numbers do not meet those of messages (join.cc, wire.h), and in every version
// the daemon's is the same, so that each can tell the other one's.
enum class Speaker : uint8_t { daemon = 32, rank = 33 };
// The length in front does not count itself.
constexpr uint32_t kRefusalLength = kStartBytes - kLengthBytes;
constexpr uint32_t kProofLength = kOpeningBytes - kLengthBytes;

Bytes startOf(Speaker speaker, uint32_t length) {
  return ByteWriter().put(length).put(kMagic).put(kVersion).put(speaker).put(uint8_t{0}).take();
}

// The length of the message. The version is read only where the rest is a start of ours: other bytes come
// from a stranger and have no version.
Result<uint32_t> lengthIn(std::span<const std::byte> start, Speaker speaker) {
  ByteReader in(start);
  const auto length = in.get<uint32_t>();
  const auto magic = in.get<uint32_t>();
  const auto version = in.get<uint16_t>();
  const auto said = in.get<Speaker>();
  const auto zero = in.get<uint8_t>();
  if (in.failed() || magic != kMagic || said != speaker)
    return joinError("what came is no message of weft's aggregation");
  if (version != kVersion)
    return joinError(
        format("the other end speaks version %u and this one version %u: install one release everywhere",
               version, kVersion));
  if (zero != 0 || (length != kProofLength && length != kRefusalLength))
    return joinError("what came is no message of weft's aggregation, or was changed on its way");
  return length;
}

// The proofs cover what both ends know.
NoiseHandshake handshake(NoiseHandshake::Role role, const Key256& key) {
  return NoiseHandshake(role, startOf(Speaker::rank, kProofLength), key);
}

Bytes proofBy(Speaker speaker, const NoiseMessage& message) {
  Bytes bytes = startOf(speaker, kProofLength);
  bytes.insert(bytes.end(), message.begin(), message.end());
  return bytes;
}

Bytes lengthOf(size_t message) {
  return ByteWriter().put(static_cast<uint32_t>(message)).take();
}

Result<Bytes> receive(const Fd& fd, size_t bytes, const Patience& patience) {
  ExactReader reader;
  reader.expect(bytes);
  const Status got = receiveAll(fd.get(), reader, patience.deadline());
  if (!got) return joinError(got.error());
  return Bytes(reader.bytes().begin(), reader.bytes().end());
}

Status send(const Fd& fd, const Bytes& bytes, const Patience& patience) {
  const Status sent = sendAll(fd.get(), bytes, patience.deadline());
  return sent ? Status() : Status(joinError(sent.error()));
}

}  // namespace

Error joinError(const std::string& why, Code code) {
  return Error(code, kOperation, why);
}

Error joinError(const Error& error) {
  return Error(error.code() == Code::unavailable ? Code::remote : error.code(), kOperation, error.detail(),
               error.errnum());
}

Key256 joinKeyOf(const Protection& protection, const std::string& secret) {
  return protection.keyFor(std::as_bytes(std::span(secret.data(), secret.size())), kPurpose);
}

Bytes JoinSeal::close(const Bytes& message) {
  Bytes record = lengthOf(message.size());
  record.insert(record.end(), message.begin(), message.end());
  record.resize(record.size() + kSealBytes);
  const std::span<std::byte> all(record);
  out_.close(all.first(kLengthBytes), all.subspan(kLengthBytes, message.size()), all.last<kSealBytes>());
  return record;
}

std::optional<Bytes> JoinSeal::open(std::span<const std::byte> rest) {
  if (rest.size() < kSealBytes) return std::nullopt;
  const auto sealed = rest.first(rest.size() - kSealBytes);
  Bytes message(sealed.begin(), sealed.end());
  if (!in_.open(lengthOf(message.size()), message, rest.last<kSealBytes>())) return std::nullopt;
  return message;
}

Result<size_t> restOf(std::span<const std::byte> length, size_t most) {
  const auto bytes = ByteReader(length).get<uint32_t>();
  if (bytes > most) return joinError(format("a message of %u bytes is too long to be one", bytes));
  return bytes + kSealBytes;
}

Result<Met> meetRank(std::span<const std::byte> opening, const Key256& key) {
  if (opening.size() != kOpeningBytes) return joinError("a message is cut off");
  TRY(const uint32_t length, lengthIn(opening.first(kStartBytes), Speaker::rank));
  NoiseHandshake noise = handshake(NoiseHandshake::Role::acceptor, key);
  if (length != kProofLength || !noise.hear(opening.subspan(kStartBytes)))
    return joinError("somebody who wants to join has another secret (WEFT_AGGD_SECRET, or WEFT_SECRET)",
                     Code::config);
  Bytes answer = proofBy(Speaker::daemon, noise.say());
  return Met{std::move(answer), JoinSeal(noise.finish())};
}

Bytes refusal() {
  return startOf(Speaker::daemon, kRefusalLength);
}

Status JoinLink::say(const Bytes& message, const Patience& patience) {
  return send(fd_, seal_.close(message), patience);
}

Result<Bytes> JoinLink::hear(const Patience& patience, size_t most) {
  TRY(const Bytes length, receive(fd_, kLengthBytes, patience));
  TRY(const size_t rest, restOf(length, most));
  TRY(const Bytes sealed, receive(fd_, rest, patience));
  auto message = seal_.open(sealed);
  if (message) return std::move(*message);
  return joinError("bytes came that the daemon did not send: they were changed on their way");
}

Result<Fd> dialDaemon(const std::string& address, const Patience& patience) {
  const auto addresses = resolve(address, Resolving::toDial);
  if (!addresses) return joinError(addresses.error());
  auto fd = connectToOne(*addresses, patience.deadline());
  if (fd) return fd;
  return joinError(fd.error());
}

Result<JoinLink> meetDaemon(Fd fd, const Key256& key, const Patience& patience) {
  NoiseHandshake noise = handshake(NoiseHandshake::Role::dialler, key);
  TRY(send(fd, proofBy(Speaker::rank, noise.say()), patience));
  TRY(const Bytes start, receive(fd, kStartBytes, patience));
  TRY(const uint32_t length, lengthIn(start, Speaker::daemon));
  if (length == kRefusalLength)
    return joinError(
        "it refuses, as it has another secret: WEFT_AGGD_SECRET must be the daemon's, and WEFT_SECRET, where "
        "a side has it, the same on both",
        Code::config);
  TRY(const Bytes message, receive(fd, kNoiseBytes, patience));
  if (!noise.hear(message))
    return joinError(
        "what answers there does not know the secret of WEFT_AGGD_SECRET, or its answer was changed on its "
        "way; look who listens on that port");
  return JoinLink(std::move(fd), JoinSeal(noise.finish()));
}

}  // namespace weft::coll
