// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <string>
#include <vector>

#include "src/base/bytes.h"
#include "src/core/checksums.h"
#include "src/core/wire.h"
#include "weft/result.h"

// What engines tell each other over the control link. Every message is an EngineHeader and one of these
// bodies; decoders check every length and say false, or give `remote` errors that name the message.
// docs/wire.md, "Between engines".
namespace weft::core {

enum class MessageType : uint16_t {
  open = 16,        // connector -> acceptor: my half is ready, here is my ring
  announce,         // this memory id may appear in my CTS once you acknowledged it
  announced,        //   acknowledgement
  withdraw,         // forget that id; no CTS names it any more
  cancel,           // receiver -> sender: begin nothing more on this comm, and tell your total
  total,            // sender -> receiver: I sent this many messages, and no more; tell me when you have them
  receivedAll,      //   acknowledgement
  closed,           // this comm is closed on my side; a sender adds its total
  failed,           // this comm failed on my side, with the reason
  probe,            // receiver -> sender: what became of message (tag, k)?
  probed,           //   answer
  askRead,          // receiver -> sender: how far did you read my CTS?
  tellRead,         //   answer
  engineGone,       // my engine is closing: its lanes will break
  ended,            // our peering is over, for this reason, and every comm on it
  laneRetire = 64,  // I leave this lane: fence your end
  laneRetired,      // my end is fenced, and this is what I cannot account for
  missing,          //   answer: what of it must be written again
  laneAddress,      // my end's of the lane's next incarnation
  ctsAgain,         // CTS that may have been lost with a lane
  askPolled,        // tell me when your engine has polled
  tellPolled,       //   answer
  laneConnected,    // my end of the lane has your address, or stands: where the fabric wants that, you may
                    // write
  gpuMemory,        // receiver -> sender: I receive into GPU memory, so send nothing eagerly
  localAddress,     // connector -> acceptor: my endpoint in shared memory; look for it
  waitsFor,         // my engine waits for that process, or for one that it waits for; empty: for nobody
  checksums,        // sender -> receiver: the sums of these messages' bytes
  openMemory,       // receiver -> sender: messages may be placed in this memory, which was announced
  shutMemory,       // receiver -> sender: place nothing more there, and say which message is the next
  memoryShut,       //   answer
};

struct EngineHeader {
  uint32_t to = 0;    // engine of the receiving process
  uint32_t from = 0;  // engine of the sending process
  // Which of the peerings that either engine ever made it is about; 0: its owner has not told yet, or the
  // message is about none.
  uint32_t toLife = 0;
  uint32_t fromLife = 0;

  void encode(ByteWriter* out) const { out->put(to).put(from).put(toLife).put(fromLife); }
  static EngineHeader decode(ByteReader* in) {
    return {in->get<uint32_t>(), in->get<uint32_t>(), in->get<uint32_t>(), in->get<uint32_t>()};
  }
};

// One memory as the peer may use it: an id and one blob per rail of its owner's device.
struct MemoryNotice {
  uint32_t id = 0;
  std::vector<Bytes> railBlobs;

  void encode(ByteWriter* out) const;
  static MemoryNotice decode(ByteReader* in);
};

// One side's half of a peering: what the other side needs to reach this engine.
struct PeeringInfo {
  uint32_t engine = 0;
  uint32_t peering = 0;  // this side's number; comes back in credit lines
  uint32_t life = 0;     // which of the peerings that this engine ever made; comes back in headers
  uint16_t rails = 0;    // of this side's device
  std::string deviceName;
  std::vector<Bytes> laneAddresses;
  Bytes localAddress;   // of an endpoint in shared memory; empty: there is none, or the two cannot use it
  MemoryNotice memory;  // where the two below live; with such an endpoint its key comes last
  uint64_t eagerOffset = 0;  // pool of eager slots
  uint32_t eagerSlots = 0;   // how many of them the other side may use; 0: no eager
  uint32_t eagerSlotBytes = 0;
  uint32_t eagerFirstSlot = 0;  // number of the first one in notifications
  uint64_t creditOffset = 0;    // where this side expects its credit line

  void encode(ByteWriter* out) const;
  static PeeringInfo decode(ByteReader* in);
};

struct ConnectRequest {
  uint32_t engine = 0;
  uint16_t rails = 0;
  std::string refusal;  // not empty: this side cannot connect, for this reason, and has no engine

  Bytes encode() const;
  static Result<ConnectRequest> decode(std::span<const std::byte> bytes);
};

struct ConnectReply {
  uint32_t comm = 0;
  uint32_t window = 0;  // bytes of direct messages that may wait here; 0: none may come
  PeeringInfo half;

  Bytes encode() const;
  static Result<ConnectReply> decode(std::span<const std::byte> bytes);
};

// Bodies after the EngineHeader. `comm` is always the receiver's number for the connection.
struct OpenMessage {
  uint32_t comm = 0;
  uint32_t sender = 0;  // the connector's number for the connection
  PeeringInfo half;
  MemoryNotice ringMemory;
  uint64_t ringOffset = 0;
};

// cancel, receivedAll, askRead, gpuMemory: comm only; total, closed, tellRead: and a number;
// announced and withdraw: the memory id in place of the comm; askPolled, tellPolled: a number only.
struct CommMessage {
  uint32_t comm = 0;
  uint64_t number = 0;
};

// failed; ended, which is about all comms of the peering; waitsFor, with a message's number and a name in
// place of both.
struct FailedMessage {
  uint32_t comm = 0;
  std::string reason;
};

enum class ProbeState : uint8_t { notPosted, waitingForCts, sent };

struct ProbeMessage {
  uint32_t comm = 0;
  uint32_t tag = 0;
  uint32_t k = 0;
  uint32_t ctsSequence = 0;
  uint32_t slot = 0;  // of the asker, given back
  uint32_t generation = 0;
  ProbeState state = ProbeState::notPosted;  // in the answer
};

// A lane's incarnation, and what belongs to it: laneRetire (why), laneAddress (address), laneConnected.
// localAddress: the address only.
struct LaneMessage {
  uint8_t lane = 0;
  uint32_t incarnation = 0;
  std::string reason;
  Bytes address;
};

// Segments of one message, or one use of an eager slot, that left by a lane and are not accounted for.
struct Suspect {
  uint32_t comm = 0;  // 0: eager
  uint32_t slot = 0;  // receive slot and its generation; or eager slot, and its use above kSuspectUseShift
  uint32_t tag = 0;   // and the message, as a slot's generation comes again; both 0 for an eager slot
  uint32_t k = 0;
  uint16_t segments = 0;  // a bit each
};
constexpr int kSuspectUseShift = 6;
constexpr size_t kMostSuspects = 3000;  // in one message

struct RetiredMessage {
  uint8_t lane = 0;
  uint32_t incarnation = 0;
  bool more = false;  // another message continues the list
  std::vector<Suspect> suspects;
};

struct MissingMessage {
  uint8_t lane = 0;
  uint32_t incarnation = 0;
  uint32_t first = 0;  // place in the peer's list of what the first one answers
  std::vector<uint16_t> segments;
};

struct CtsMessage {
  struct Placed {
    uint16_t position = 0;
    Cts cts;
  };
  uint32_t comm = 0;
  std::vector<Placed> cts;
};

// Memory that a receiver opens to the sender of one comm, as a piece of what it has announced.
struct OpenMemoryMessage {
  uint32_t comm = 0;
  uint32_t number = 0;  // by which the sender's owner will name it
  uint32_t memory = 0;  // announced id
  uint64_t offset = 0;  // of its first byte there
  uint64_t length = 0;
};

// shutMemory, with the tag of placed messages; in memoryShut with k of the next message of that tag.
struct ShutMemoryMessage {
  uint32_t comm = 0;
  uint32_t number = 0;
  uint32_t tag = 0;
  uint32_t k = 0;
};

struct SumsMessage {
  uint32_t comm = 0;
  std::vector<PayloadSum> sums;
};

void encodeBody(ByteWriter* out, const LaneMessage& message);
void encodeBody(ByteWriter* out, const RetiredMessage& message);
void encodeBody(ByteWriter* out, const MissingMessage& message);
void encodeBody(ByteWriter* out, const CtsMessage& message);
bool decodeBody(ByteReader* in, LaneMessage* message);
bool decodeBody(ByteReader* in, RetiredMessage* message);
bool decodeBody(ByteReader* in, MissingMessage* message);
bool decodeBody(ByteReader* in, CtsMessage* message);
void encodeBody(ByteWriter* out, const SumsMessage& message);
bool decodeBody(ByteReader* in, SumsMessage* message);
void encodeBody(ByteWriter* out, const OpenMemoryMessage& message);
bool decodeBody(ByteReader* in, OpenMemoryMessage* message);
void encodeBody(ByteWriter* out, const ShutMemoryMessage& message);
bool decodeBody(ByteReader* in, ShutMemoryMessage* message);
void encodeBody(ByteWriter* out, const OpenMessage& message);
void encodeBody(ByteWriter* out, const CommMessage& message);
void encodeBody(ByteWriter* out, const FailedMessage& message);
void encodeBody(ByteWriter* out, const ProbeMessage& message);
void encodeBody(ByteWriter* out, const MemoryNotice& message);
bool decodeBody(ByteReader* in, OpenMessage* message);
bool decodeBody(ByteReader* in, CommMessage* message);
bool decodeBody(ByteReader* in, FailedMessage* message);
bool decodeBody(ByteReader* in, ProbeMessage* message);
bool decodeBody(ByteReader* in, MemoryNotice* message);

}  // namespace weft::core
