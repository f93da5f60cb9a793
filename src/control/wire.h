// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/base/bytes.h"
#include "src/base/net/proof.h"
#include "src/control/contract.h"
#include "src/control/handle.h"

// The bytes of control links, as pure encoders and decoders: a decoder takes any bytes and returns
// nothing when they are not what it expects. Layouts: docs/wire.md, "Control links". Values; any thread.
namespace weft::control {

constexpr size_t kMaxBody = 64 * 1024;           // a caller's message
constexpr size_t kMaxFrameBody = kMaxBody + 64;  // plus the hub's own fields around it
constexpr size_t kMaxInfo = 8 * 1024;            // fits a fresh socket's buffer in one write

// The handshake, before anything is proven; fixed sizes only:

enum class HelloKind : uint8_t { open = 1, resume = 2 };

// The dialling side speaks first.
struct Hello {
  uint16_t version = kWireVersion;
  HelloKind kind = HelloKind::open;
  Incarnation from{};
  Incarnation to{};       // the process the handle named
  uint32_t listener = 0;  // open: whose secret is proven; resume: 0
  uint64_t epoch = 0;     // the dialling process's count of links; a lower one is a stale dial
  Nonce nonce{};
};
constexpr size_t kHelloBytes = 4 + 2 + 2 + 16 + 16 + 4 + 8 + 16;
Bytes encodeHello(const Hello& hello);
std::optional<Hello> decodeHello(std::span<const std::byte> in);  // only magic and version when that differs

enum class Answer : uint8_t {
  proof = 1,
  otherVersion = 2,
  otherProcess = 3,  // the process that was meant does not listen here
  listenerClosed = 4,
  unknownLink = 5,  // resume: no such link, or none any more
};

struct Challenge {
  uint16_t version = kWireVersion;
  Answer answer = Answer::proof;
  Nonce nonce{};
  Tag128 proof{};  // of the accepting side
};
constexpr size_t kChallengeBytes = 4 + 2 + 2 + 16 + 16;
Bytes encodeChallenge(const Challenge& challenge);
std::optional<Challenge> decodeChallenge(std::span<const std::byte> in);

constexpr size_t kProofBytes = sizeof(Tag128);

// Everything both sides said so far, under a label that says what the tag is for.
enum class ProofOf : uint8_t { acceptor = 1, dialler = 2, linkKey = 3 };
Tag128 handshakeTag(ProofOf what, const Key128& key, const Hello& hello, const Nonce& acceptorNonce);

// Frames, once both sides proved themselves:

enum class FrameType : uint16_t {
  info = 1,    // first frame each way: who I am, what I have received of you
  reject = 2,  // instead of info: why this connection is not used
  ping = 3,
  pong = 4,
  call = 5,
  reply = 6,
  refuse = 7,
  goodbye = 8,
};
constexpr uint16_t kFirstUserType = 16;

struct FrameHeader {
  uint32_t length = 0;  // of the body
  uint16_t type = 0;
  uint64_t sequence = 0;  // from 1, by direction; 0: not part of the sequence, never sent again
  uint64_t received = 0;  // the highest sequence number the sender of this frame has received
};
constexpr size_t kFrameHeaderBytes = 4 + 2 + 2 + 8 + 8;
void encodeFrame(const FrameHeader& header, std::span<const std::byte> body, Bytes& out);
std::optional<FrameHeader> decodeFrameHeader(std::span<const std::byte> in);

// A process introduces itself.
struct Info {
  uint64_t epoch = 0;
  uint64_t received = 0;
  std::string host;
  uint32_t pid = 0;
  std::vector<SocketAddress> addresses;
  Fingerprint fingerprint;
};
Bytes encodeInfo(const Info& info);
std::optional<Info> decodeInfo(std::span<const std::byte> in);

enum class Reject : uint8_t { crossed = 1 };  // both dialled; the other connection is the one

struct CallBody {
  uint64_t id = 0;
  uint32_t listener = 0;
  Tag128 proof{};
  std::span<const std::byte> body;
};
Bytes encodeCall(const CallBody& call);
std::optional<CallBody> decodeCall(std::span<const std::byte> in);

// The nonces bind the proof to this link, the caller to its direction.
struct LinkNonces {
  Nonce dialler{};
  Nonce acceptor{};
};
Tag128 callTag(const Key128& secret, const LinkNonces& nonces, const Incarnation& caller,
               const CallBody& call);

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

// The first field on which two processes must agree and do not; nothing when they fit.
std::optional<Error> compareFingerprints(const Fingerprint& ours, const Fingerprint& theirs,
                                         const std::string& peerName);

}  // namespace weft::control
