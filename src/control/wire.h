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

// The bytes of control links, as pure encoders and decoders. A decoder takes any bytes, and returns nothing
// where they are not what it expects. Layouts: docs/wire.md, "Control links". Values; any thread.
namespace weft::control {

constexpr size_t kMaxBody = 64 * 1024;           // bytes of a caller's message
constexpr size_t kMaxFrameBody = kMaxBody + 64;  // with the hub's own fields around it
constexpr size_t kMaxInfo = 8 * 1024;            // fits into a fresh socket's buffer in one write

// The handshake, before anything is proven. All messages have fixed sizes.

enum class HelloKind : uint8_t { open = 1, resume = 2 };

// The first message. The dialling side sends it.
struct Hello {
  uint16_t version = kWireVersion;
  HelloKind kind = HelloKind::open;
  Incarnation from{};
  Incarnation to{};       // the process the handle named
  uint32_t listener = 0;  // open: the listener whose secret is proven; resume: 0
  uint64_t epoch = 0;     // the dialling process's count of connections; a lower one is a stale dial
  Nonce nonce{};
};
constexpr size_t kHelloBytes = 4 + 2 + 2 + 16 + 16 + 4 + 8 + 16;
Bytes encodeHello(const Hello& hello);
// Only magic and version where the version differs.
std::optional<Hello> decodeHello(std::span<const std::byte> in);

// The accepting side's answer to a hello. Only `proof` lets the talk go on.
enum class Answer : uint8_t {
  proof = 1,
  otherVersion = 2,
  otherProcess = 3,  // the process that was meant does not listen here
  listenerClosed = 4,
  unknownLink = 5,  // resume: there is no such link, or none any more
};

// The second message, from the accepting side. Without a proof, nonce and proof are zero.
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

// A proof over everything that both sides have said so far, under a label that says what the tag is for.
enum class ProofOf : uint8_t { acceptor = 1, dialler = 2, linkKey = 3 };
Tag128 handshakeTag(ProofOf what, const Key128& key, const Hello& hello, const Nonce& acceptorNonce);

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
  Tag128 proof{};  // callTag() with the listener's secret
  std::span<const std::byte> body;
};
Bytes encodeCall(const CallBody& call);
std::optional<CallBody> decodeCall(std::span<const std::byte> in);

// The nonces bind a proof to this link; the caller in callTag() binds it to a direction.
struct LinkNonces {
  Nonce dialler{};
  Nonce acceptor{};
};
Tag128 callTag(const Key128& secret, const LinkNonces& nonces, const Incarnation& caller,
               const CallBody& call);

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
