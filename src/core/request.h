// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <cstdint>

#include "src/base/clock.h"
#include "src/core/comm_api.h"
#include "src/core/wire.h"
#include "src/mem/region.h"

// The engine's two kinds of pool items: what NCCL waits for (Request) and where a peer writes (ReceiveSlot).
// Both live in Pools of the Engine, are addressed by index and used only by who has entered the engine.
namespace weft::core {

class CommBase;
class SendCommImpl;
class RecvCommImpl;
struct Announcement;

// How far the sender of a comm may place messages in memory of its receiver. MemoryHandle::enter alone
// changes it, and it never goes back.
enum class Door : uint8_t {
  never,     // it was not opened
  open,      // it may
  closing,   // it was told to place nothing more there, and has not answered
  answered,  // it places nothing more, and what it had placed may be on its way
  shut,      // nothing more lands
};

// What regMr returns: a region, on behalf of one comm.
class MemoryHandle {
 public:
  MemoryHandle() = default;
  MemoryHandle(mem::RegionRef of, CommBase* by)
      : region(std::move(of)),
        owner(by),
        begin(reinterpret_cast<uintptr_t>(region->begin())),
        length(region->length()),
        host(region->kind() == MemoryKind::host) {}

  bool covers(const void* data, size_t bytes) const {
    const uintptr_t offset = reinterpret_cast<uintptr_t>(data) - begin;
    return offset <= length && bytes <= length - offset;
  }

  uint64_t offsetOf(const void* data) const { return reinterpret_cast<uintptr_t>(data) - begin; }

  void enter(Door next) {
    if (next > door) door = next;
  }
  // Messages may be placed in it, now or still.
  bool mayBePlacedIn() const { return door != Door::never && door != Door::shut; }

  mem::RegionRef region;
  CommBase* owner = nullptr;
  uintptr_t begin = 0;  // the region's: every data call looks at these
  size_t length = 0;
  bool host = true;
  uint64_t number = 0;                   // of its comm's, in the order of registering
  uint32_t inUse = 0;                    // requests and slots that touch it
  Announcement* announcement = nullptr;  // receiving side: how far the peer knows it
  Door door = Door::never;               // likewise
  uint32_t openedAs = 0;                 // the number by which the sender names it
  uint32_t placedBefore = 0;             // once it answered: k of the first message that is not placed in it
};

enum class RequestKind : uint8_t { none, send, receive, flush, putOff };

struct SegmentInFlight {
  uint8_t lane = 0;
  uint8_t attempt = 0;  // how often it was asked for again
  bool done = false;
  uint32_t bytes = 0;  // segments lie side by side, in order
};

// Where the segments of a send come from and go to, for one that must be written again.
struct Transfer {
  const void* data = nullptr;
  uint64_t offset = 0;    // in the peer's memory
  uint32_t memoryId = 0;  // as announced by the peer
  uint32_t slot = 0;      // of the peer, with its generation
};

class Request {
 public:
  RequestKind kind = RequestKind::none;
  bool reportedFailed = false;  // a fact that NCCL was told, which stays true whatever still arrives
  uint8_t count = 1;            // receives in the group
  uint8_t remaining = 0;        // receives, segments or reads still to come
  uint8_t segmentCount = 0;     // send
  uint16_t generation = 0;      // bumped after each use: late completions are told by it
  uint32_t index = 0;           // of this item in the pool
  uint32_t departure = 0;       // a send that waits for others: what Peering::leaveWith is told; else 0, but
                                // for a flush that was put off
  CommBase* comm = nullptr;
  MemoryHandle* memory = nullptr;  // send: while its segments are in flight
  uint32_t record = 0;             // send: its number in what others see of the comm
  uint64_t bytes = 0;              // send
  Transfer transfer;               // send
  std::array<int, kMaxRecvs> sizes{};
  std::array<int, kMaxRecvs> tags{};
  std::array<uint32_t, kMaxRecvs> sequence{};
  std::array<void*, kMaxRecvs> events{};  // the profiler's, null where nobody wants one and when free
  std::array<SegmentInFlight, kMaxSegments> segments{};
};

// A flush whose caller was not let into the engine: what it asked for, and the request that does it, from the
// first test on. Its `departure` is not 0 (CommBase::testOwn). Not of the engine's pool of requests.
class PutOffFlush : public Request {
 public:
  mem::RegionRef region;
  uint64_t offset = 0;
  Request* begun = nullptr;
};

enum class SlotState : uint8_t {
  free,
  queued,      // posted; its CTS is not written yet
  advertised,  // the sender may write
  landing,     // a direct message for it is coming: here, or to early memory
  filled,      // its message is here, and whoever tests it has not heard
  ended,       // its comm has failed and let go of it; whoever tests it has not heard
};

// One posted receive. Where it is no part of a group, and nobody profiles it, it is what NCCL waits for, too.
struct ReceiveSlot {
  uint16_t arrived = 0;   // bit per segment
  uint16_t asked = 0;     // bit per segment: it was asked for again, and only the answer counts
  uint16_t askedOdd = 0;  // and an odd number of times
  uint8_t segments = 0;   // of the message; 0 until the first one arrived
  SlotState state = SlotState::free;
  uint32_t generation = 0;  // mod kGenerations
  uint32_t index = 0;       // of this item in the pool
  uint32_t tag = 0;
  uint32_t k = 0;
  uint32_t ctsSequence = 0;
  uint16_t position = 0;        // of its CTS in the ring
  uint8_t lane = 0;             // its CTS left by; kNoLane: by the control link
  uint8_t part = 0;             // which receive of its request
  bool isRequest = false;       // whoever posted it tests it
  bool reportedFailed = false;  // as a request's
  bool mayComeEagerly = false;
  bool placed = false;              // its message lands where the sender says
  uint32_t record = 0;              // its number in what others see of the comm
  ReceiveSlot* previous = nullptr;  // slots of the same tag, oldest first
  ReceiveSlot* next = nullptr;
  uint64_t queuedAs = 0;       // its entry in its comm's queue of CTS, where it has one
  uint64_t holdUntilPass = 0;  // poll pass from which the CTS leaves in any case; 0: at once; or for a batch
  uint64_t received = 0;       // bytes; of one that is landing those that will be
  uint64_t capacity = 0;
  void* data = nullptr;

  uint32_t code() const { return index | generation << kSlotBits; }  // as CTS and segments name it
  RecvCommImpl* comm = nullptr;                                      // null while it is free
  Request* request = nullptr;                                        // it is part of, if any
  MemoryHandle* memory = nullptr;
  TimePoint advertisedAt{};  // about: by Engine::lately
  TimePoint sentAt{};        // when the sender first said it had sent this; default: never
};

inline Request* requestOf(ReceiveSlot* slot) {
  return reinterpret_cast<Request*>(reinterpret_cast<uintptr_t>(slot) | 2);
}
inline bool isSlot(const Request* request) {
  return (reinterpret_cast<uintptr_t>(request) & 3) == 2;
}
inline ReceiveSlot* slotOf(const Request* request) {
  return reinterpret_cast<ReceiveSlot*>(reinterpret_cast<uintptr_t>(request) - 2);
}

}  // namespace weft::core
