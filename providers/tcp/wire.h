// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <type_traits>

#include "src/base/bytes.h"
#include "src/base/crypto/protection.h"
#include "src/base/net/address.h"
#include "src/base/net/proof.h"
#include "weft/result.h"

// The messages between this provider's ends: the address of a lane, the greeting that opens a connection, and
// the frames that follow on it in both directions. Pure values; any thread. All of it comes from outside and
// is checked here before anybody acts on it.
namespace weft::tcp {

constexpr size_t kMaxWriteBytes = size_t{1} << 30;
constexpr uint32_t kMemoryMagic = 0x6d637477;  // "wtcm", begins a memory's description
constexpr size_t kMostStreams = 16;            // connections of one lane, the first one included

// The proof that a peer was given an address: 128 random bits, new for each lane.
using Secret = Tag128;

// The place of a lane's listening socket, and the lane that is asked for there.
struct LaneAddress {
  bool v6 = false;
  bool sealed = false;  // this end encrypts what the lane carries
  uint8_t streams = 1;  // how many this end would use at most
  uint16_t port = 0;
  std::array<std::byte, 16> ip{};  // IPv4 in the first four
  uint64_t lane = 0;
  Secret secret{};

  void listensAt(const SocketAddress& socket);  // fills v6, port and ip
  // `scope`: the interface of a link-local address, which is the own matter of each end.
  SocketAddress socket(uint32_t scope = 0) const;
};

Bytes encode(const LaneAddress& address);
Result<LaneAddress> decodeLaneAddress(std::span<const std::byte> bytes);

// The greeting of a connection: the end that accepted says its words of the door, the end that dialled
// answers with a hello, and a welcome that proves itself stands for the answer. Each tag covers both nonces,
// so a greeting that was overheard opens no other connection.

// The first bytes of the end that accepted: a nonce that is new for each connection.
constexpr size_t kDoorBytes = 24;
using DoorBytes = std::array<std::byte, kDoorBytes>;
DoorBytes encodeDoor(const Nonce& nonce);
bool decodeDoor(const DoorBytes& bytes, Nonce* out);

// The first bytes of the end that dialled.
struct Hello {
  uint64_t lane = 0;  // that is asked for
  uint8_t stream = 0;
  Nonce nonce{};   // of the end that dialled
  Tag128 claim{};  // by the wanted lane's secret: its address was given to the sender
  Tag128 proof{};  // by both lanes' secrets: the sender is the peer that was given that lane
};
constexpr size_t kHelloBytes = 72;
using HelloBytes = std::array<std::byte, kHelloBytes>;
HelloBytes encode(const Hello& hello);
bool decode(const HelloBytes& bytes, Hello* out);

// What the tags of one connection cover. The two addresses are those of the lanes.
struct Greeting {
  Nonce door{};
  Hello hello;
  std::span<const std::byte> acceptor;  // its lane's encoded address
  std::span<const std::byte> dialler;
};
enum class TagOf : uint8_t { claim = 1, hello = 2, welcome = 3 };
Tag128 greetingTag(TagOf what, const Key256& key, const Greeting& greeting);
// The keys of the tags: of a claim, and of the others.
Key256 claimKey(const Protection& protection, const Secret& lane);
Key256 greetingKey(const Protection& protection, const Secret& acceptor, const Secret& dialler);

enum class FrameKind : uint8_t {
  write = 1,    // `length` bytes for `key` at `offset`
  notify,       // the same, and the other end's Queue tells of it
  readRequest,  // asks for `length` bytes of `key` at `offset`; `number` names the read
  readReply,    // these bytes
  ack,          // only for its `landed`
  welcome,      // answers the greeting, and the lane stands; `key` and `offset` are its tag
  streams,      // of the end that dialled: more connections are coming; of the other: please open some;
                // `number` of them in all, 0: as many as the end that dials begins with
  bye,          // nothing but answers comes after it
  byeAnswer,    // all that came before the bye has landed
  refusal,      // `number` says why; the connection ends here
  message,      // `length` bytes for where the receiver says; `number`, `key` and `offset` are its label
};

enum class Refused : uint32_t { memory = 1, range = 2, protocol = 3 };

constexpr uint8_t kWantsAck = 1;
constexpr uint16_t kFrameMark = 0x5774;

struct FrameHeader {
  uint32_t length = 0;
  uint16_t mark = kFrameMark;
  FrameKind kind = FrameKind::ack;
  uint8_t flags = 0;
  uint32_t number = 0;  // notify: its 32 bits
  uint32_t landed = 0;  // writes with kWantsAck that came the other way on this connection, modulo 2^32
  uint64_t key = 0;
  uint64_t offset = 0;

  bool carries() const {  // `length` bytes follow
    return kind == FrameKind::write || kind == FrameKind::notify || kind == FrameKind::readReply ||
           kind == FrameKind::message;
  }
};
constexpr size_t kHeaderBytes = sizeof(FrameHeader);
static_assert(kHeaderBytes == 32 && std::is_trivially_copyable_v<FrameHeader>);

// The tag of a welcome in its header.
void putTag(const Tag128& tag, FrameHeader* header);
Tag128 tagIn(const FrameHeader& header);

// True for a header of ours; the memory that it names is not looked at.
bool wellFormed(const FrameHeader& header);

}  // namespace weft::tcp
