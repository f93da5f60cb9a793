// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tests/softefa/identity.h"

namespace softefa {

// What crosses from one NIC to another: packets of at most one MTU. All processes of a fabric run on one
// machine and use one build of this library, so a packet is its structure in memory.
inline constexpr uint32_t kMtu = 8928;  // payload of one packet, and the longest SEND, as on the hardware

enum class PacketKind : uint8_t {
  send,          // one message in one packet
  datagram,      // the same on an unreliable queue pair
  write,         // a part of an RDMA write
  readRequest,   // asks for readResponse packets
  readResponse,  // a part of what was read
  answer,        // how a message ended at its target
};

// With the state of its slot (inbox.h) and the payload of a small message within two cache lines: what each
// more costs is seen in the latency.
struct PacketHeader {
  PacketKind kind = PacketKind::send;
  bool hasImm = false;
  uint16_t status = 0;     // of an answer; Status
  uint32_t messageId = 0;  // chosen by the requester, unique among its outstanding ones
  uint32_t attempt = 0;    // counts a message's attempts after "receiver not ready"
  uint32_t length = 0;     // bytes of this packet's payload
  Gid from;
  // The opening of the NIC that sent the message; a NIC's numbers are used again, this is not. Answers and
  // read data carry it back: what was for another opening is not for this one.
  uint64_t sender = 0;
  uint32_t fromQpn = 0;
  uint32_t toQpn = 0;
  uint32_t qkey = 0;
  uint32_t imm = 0;  // network order, as given
  uint32_t rkey = 0;
  uint32_t offset = 0;   // of this packet in the message
  uint64_t address = 0;  // of the whole message in the target's memory
  uint64_t total = 0;    // bytes of the whole message
};
static_assert(sizeof(PacketHeader) == 80);

using Piece = std::span<const std::byte>;  // part of a payload that is not yet in a packet

struct Packet {
  PacketHeader header;
  std::vector<std::byte> payload;
};

// A queue pair number is the number of its inbox and a slot in it; 16 bits, as on the hardware.
inline constexpr uint32_t kInboxes = 64;       // of one NIC: processes times openings
inline constexpr uint32_t kQueuePairs = 1024;  // of one inbox
inline constexpr uint32_t inboxOf(uint32_t qpn) {
  return qpn / kQueuePairs;
}

}  // namespace softefa
