// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <deque>
#include <memory>
#include <optional>

#include "src/base/bytes.h"
#include "src/coll/pipe.h"
#include "src/rma/bounce.h"
#include "src/rma/request.h"
#include "src/rma/signal.h"

// What goes to one rank: heads in the order in which they were posted, and behind each head the bytes that
// belong to it, cut into messages. Bytes that answer gets have a stream of their own, so that they wait for
// no put. A link owns it (link.h); the team's lock guards it. The comm below sees to rails, credits and loss.
namespace weft::rma {

class Sender {
 public:
  // Bytes of a window that are to leave.
  struct Body {
    const std::byte* data = nullptr;
    uint64_t bytes = 0;
    core::MemoryHandle* memory = nullptr;
    Request* request = nullptr;      // null: it answers a get
    Window* window = nullptr;        // of an answer: in use until the last byte has left
    const Window* staged = nullptr;  // the bytes go through host memory, and `memory` is null
    uint32_t piece = kPieceBytes;
    bool filled = false;  // the next slot has the next piece already
    bool placed = false;  // to `to`, from where on these bytes lie in that window there
    uint32_t toWindow = 0;
    uint64_t to = 0;
  };
  // A head, and what goes with it.
  struct Message {
    Head head;
    const std::byte* inlined = nullptr;  // memory of the request's window, or null
    Bytes owned;                         // bytes of this rank's own instead
    Request* request = nullptr;
    Body body;
  };

  static Result<std::unique_ptr<Sender>> create(core::SendComm& comm, uint32_t rank, const OwnMemory& memory);
  Sender(core::SendComm& comm, uint32_t rank, const OwnMemory& memory)
      : comm_(comm), rank_(rank), own_(memory) {}

  // Returns the sequence number that the head will have.
  uint64_t post(Message message);
  bool left(uint64_t sequence) const { return sequence < sequence_; }
  void answer(const Body& body);
  // Moves what can move now. False: the comm is broken, or fault() says what is.
  bool advance();
  const std::optional<Error>& fault() const { return fault_; }  // of this end's memory
  // The other rank lets the fabric write into that window of its own.
  bool mayPlace(uint32_t window) const { return comm_.isOpen(window); }
  bool idle() const;
  size_t headsWaiting() const { return heads_.size() + headFlights_.size(); }
  uint64_t bytesWaiting() const;  // of puts and of answers to gets
  void drop();                    // of a lost link: forgets everything; nothing of it is posted any more

 private:
  struct Flight {
    core::Request* request = nullptr;
    uint64_t bytes = 0;
    Request* of = nullptr;
    Window* release = nullptr;  // no longer in use once this has left
    bool slot = false;          // it left from a slot of the stream's
  };
  // The messages of one tag. Those under way end in about their order, so the oldest alone is tested.
  struct Stream {
    int tag;
    std::deque<Body> waiting;
    std::deque<Flight> flights;
    LazyBounce bounce;
  };
  // What the next message is made of.
  struct Piece {
    const std::byte* data = nullptr;  // null: not now
    uint64_t bytes = 0;
    core::MemoryHandle* memory = nullptr;
  };

  void count(const Head& head);
  Result<Piece> nextPiece(Stream& stream, Body& body);
  core::Posted postPiece(const Stream& stream, const Body& body, const Piece& piece);
  bool postHeads();
  bool testHeads();
  bool postBodies(Stream& stream);
  bool testBodies(Stream& stream);

  core::SendComm& comm_;
  const uint32_t rank_;  // the other end
  const OwnMemory& own_;
  std::optional<Error> fault_;
  coll::Staging slots_;  // of heads: a ring
  core::MemoryHandle* memory_ = nullptr;
  uint64_t posted_ = 0;    // heads that were ever posted
  uint64_t sequence_ = 0;  // of the next head that leaves
  std::deque<Message> heads_;
  std::deque<Flight> headFlights_;  // each has the slot of its sequence
  Stream puts_{kPutTag, {}, {}, {}};
  Stream gets_{kGetTag, {}, {}, {}};
  Stream placed_{kPlacedTag, {}, {}, {}};
};

}  // namespace weft::rma
