// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/base/bytes.h"
#include "src/base/crypto/noise.h"
#include "src/control/contract.h"
#include "src/control/handle.h"

// The bytes of control links, as pure encoders and decoders. A decoder takes any bytes, and returns nothing
// where they are not what it expects. Layouts: docs/wire.md, "Control links". Values; any thread.
namespace weft::control {

constexpr size_t kMaxBody = 64 * 1024;           // bytes of a caller's message
constexpr size_t kMaxFrameBody = kMaxBody + 64;  // with the hub's own fields around it
constexpr size_t kMaxInfo = 8 * 1024;            // fits into a fresh socket's buffer in one write

// The handshake, before anything is proven. All messages have fixed sizes. It is the one of
// src/base/crypto/noise.h, with the secret of the listener or the key of the link.

enum class HelloKind : uint8_t { open = 1, resume = 2 };

// How an end protects its links; both ends have to do the same.
enum HelloFlags : uint8_t {
  kHasJobSecret = 1,   // WEFT_SECRET is mixed into its proofs
  kFramesInClear = 2,  // WEFT_ENCRYPT is off
  kAllHelloFlags = 3,
};

// The first message, by the dialling side. All of it before the last field is the prologue of the Noise
// handshake, so the proofs cover it.
struct Hello {
  uint16_t version = kWireVersion;
  HelloKind kind = HelloKind::open;
  uint8_t flags = 0;
  Incarnation from{};
  Incarnation to{};       // the process the handle named
  uint32_t listener = 0;  // open: the listener whose secret is proven; resume: 0
  uint64_t epoch = 0;     // the dialling process's count of connections; a lower one is a stale dial
  NoiseMessage noise{};
};
constexpr size_t kPrologueBytes = 4 + 2 + 2 + 16 + 16 + 4 + 8;
constexpr size_t kHelloBytes = kPrologueBytes + kNoiseBytes;
Bytes encodePrologue(const Hello& hello);
Bytes encodeHello(const Hello& hello);
// Only magic and version where the version differs.
std::optional<Hello> decodeHello(std::span<const std::byte> in);

// Hello and challenge begin alike, in every version: the magic, the version, and two bytes more.
constexpr size_t kStartBytes = 4 + 2 + 2;
std::optional<uint16_t> versionIn(std::span<const std::byte> start);

// The accepting side's answer to a hello. Only `proof` lets the talk go on.
enum class Answer : uint8_t {
  proof = 1,
  otherVersion = 2,
  otherProcess = 3,  // the process that was meant does not listen here
  listenerClosed = 4,
  unknownLink = 5,      // resume: there is no such link, or none any more
  otherSecret = 6,      // the hello was not made with the secret of that listener or link
  otherJobSecret = 7,   // only one of the two processes has WEFT_SECRET
  otherEncryption = 8,  // WEFT_ENCRYPT is off in only one of them
};

// The second message, by the accepting side: the answer, and its part of the handshake if that is `proof`.
struct Challenge {
  uint16_t version = kWireVersion;
  Answer answer = Answer::proof;
  NoiseMessage noise{};
};
constexpr size_t kChallengeBytes = kStartBytes + kNoiseBytes;
Bytes encodeChallenge(const Challenge& challenge);
std::optional<Challenge> decodeChallenge(std::span<const std::byte> in);
// Of the first bytes of a challenge.
std::optional<Answer> answerIn(std::span<const std::byte> start);

// What the proof of an open is made with, and that of a call.
constexpr const char* kLinkPurpose = "weft control link";
constexpr const char* kCallPurpose = "weft call";
// The key of a link's later connections, from the handshake that opened it.
Key256 linkKeyOf(const NoiseKeys& keys);

// Frames follow once both sides have proven themselves.

enum class FrameType : uint16_t {
  info = 1,    // the first frame in each direction: who I am, and what I have received of you
  reject = 2,  // instead of info: why this connection is not used
  ping = 3,
  pong = 4,
  call = 5,
  reply = 6,
  refuse = 7,
  goodbye = 8,
};
constexpr uint16_t kFirstUserType = 16;

// The head of every frame, 24 bytes.
struct FrameHeader {
  uint32_t length = 0;  // bytes of the body
  uint16_t type = 0;
  uint64_t sequence = 0;  // from 1, in each direction; 0: not in the sequence, never sent again
  uint64_t received = 0;  // the highest sequence number that the sender of this frame has received
};
constexpr size_t kFrameHeaderBytes = 4 + 2 + 2 + 8 + 8;
// Appends the frame to `out`. header.length is not read: the body's size counts.
void encodeFrame(const FrameHeader& header, std::span<const std::byte> body, Bytes& out);
std::optional<FrameHeader> decodeFrameHeader(std::span<const std::byte> in);

// A process introduces itself.
struct Info {
  uint64_t epoch = 0;     // of this connection
  uint64_t received = 0;  // the highest frame that it has received on this link
  std::string host;
  uint32_t pid = 0;
  std::vector<SocketAddress> addresses;
  Fingerprint fingerprint;
};
Bytes encodeInfo(const Info& info);
std::optional<Info> decodeInfo(std::span<const std::byte> in);

enum class Reject : uint8_t { crossed = 1 };  // both sides dialled; the other connection stays

// A request to a listener. `body` of a decoded one points into the frame.
struct CallBody {
  uint64_t id = 0;
  uint32_t listener = 0;
  Tag128 proof{};  // callTag() with a key of the listener's secret
  std::span<const std::byte> body;
};
Bytes encodeCall(const CallBody& call);
std::optional<CallBody> decodeCall(std::span<const std::byte> in);

// The hash of the handshake that opened the link binds a proof to it; the caller binds it to a direction.
Tag128 callTag(const Key256& key, const Key256& binding, const Incarnation& caller, const CallBody& call);

// The answer to a call: the listener's words, or its refusal.
struct ReplyBody {
  uint64_t id = 0;
  std::span<const std::byte> body;
};
Bytes encodeReply(const ReplyBody& reply);
std::optional<ReplyBody> decodeReply(std::span<const std::byte> in);

struct RefuseBody {
  uint64_t id = 0;
  Error why = Error(Code::remote, "", "");
};
Bytes encodeRefuse(const RefuseBody& refuse);
std::optional<RefuseBody> decodeRefuse(std::span<const std::byte> in);

// The first field on which two processes must agree and do not; nothing when they fit. `peerName` is for the
// error.
std::optional<Error> compareFingerprints(const Fingerprint& ours, const Fingerprint& theirs,
                                         const std::string& peerName);

}  // namespace weft::control
