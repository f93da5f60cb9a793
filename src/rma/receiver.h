// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "src/coll/pipe.h"
#include "src/rma/bounce.h"
#include "src/rma/request.h"
#include "src/rma/signal.h"

// What comes from one rank: heads, and the bytes for which heads or gets of this rank have made a place. Puts
// are retired in the order of their heads: a signal is added once its own bytes and those of all earlier puts
// are here. A link owns it (link.h); the team's lock guards it.
namespace weft::rma {

// The one who knows windows and signals: the team.
class Desk {
 public:
  virtual ~Desk() = default;
  // Null: no window of that number is registered now. `known`: there was one.
  virtual Window* window(uint32_t number, bool* known) = 0;
  // Adds the sum of `signals` signals to a word of this rank's memory. An error: the word is not where a word
  // can be.
  virtual Status add(Window& window, uint64_t offset, uint64_t addend, uint64_t signals) = 0;
  // Any other head. An error ends the connection.
  virtual Status heard(uint32_t from, const Head& head, std::span<const std::byte> behind) = 0;
};

class Receiver {
 public:
  static Result<std::unique_ptr<Receiver>> create(core::RecvComm& comm, uint32_t rank, uint32_t self,
                                                  const OwnMemory& memory);
  Receiver(core::RecvComm& comm, uint32_t rank, uint32_t self, const OwnMemory& memory)
      : comm_(comm), rank_(rank), self_(self), own_(memory) {}

  // Moves what can move now. An error is the other end's fault; broken(): the comm's own.
  Status advance(Desk& desk);
  bool broken() const { return broken_; }
  // The bytes that answer a get. They come in the order of the gets.
  void await(const Window& to, uint64_t offset, uint64_t bytes, uint32_t piece, Request* request);
  bool idle() const { return arrivals_.empty(); }  // every put whose head is here has landed
  size_t incomplete() const { return arrivals_.size(); }
  void drop();  // of a lost link

 private:
  // A put whose head is here. Later ones do not move it: pointers to it stay valid in a deque.
  struct Arrival {
    Head head;
    Window* window = nullptr;  // null: no bytes, or the window is gone, and they go nowhere
    Window* signal = nullptr;  // null: none
    uint64_t left = 0;         // bytes that are not here
  };
  // Puts that are retired together: the oldest ones, all of whose bytes are here. Each GPU among them is
  // flushed once, which shows it all that was written before.
  struct Batch {
    struct Part {
      int gpu;
      const Window* window;  // of its last put
      const std::byte* at;
      core::Request* request = nullptr;
      bool over = false;
    };
    size_t puts = 0;
    std::vector<Part> flushes;
  };
  // Bytes that are to come.
  struct Wanted {
    std::byte* to = nullptr;  // null: nowhere
    uint64_t bytes = 0;
    uint32_t piece = kPieceBytes;
    const Window* window = nullptr;  // null: nowhere
    Arrival* arrival = nullptr;
    Request* request = nullptr;
  };
  struct Flight {
    core::Request* request = nullptr;
    uint64_t bytes = 0;
    Arrival* arrival = nullptr;
    Request* of = nullptr;
    std::byte* at = nullptr;
    const Window* window = nullptr;
    const std::byte* slot = nullptr;    // the bytes come into it, and are copied from there
    core::Request* flushing = nullptr;  // once it has landed: the flush of a get's last bytes
  };
  struct Stream {
    int tag;
    std::deque<Wanted> waiting;
    std::deque<Flight> flights;
    LazyBounce bounce;
  };
  // A put whose bytes know their place.
  struct Placed {
    uint64_t bytes = 0;  // that are not here
    uint32_t piece = kPieceBytes;
    Arrival* arrival = nullptr;
  };
  // The place of the next message.
  struct Place {
    std::byte* data = nullptr;  // null: not now
    core::MemoryHandle* memory = nullptr;
  };

  void postHeads();
  Status testHeads(Desk& desk);
  Status take(Desk& desk, const Head& head, std::span<const std::byte> behind);
  Status takePut(Desk& desk, const Head& head, std::span<const std::byte> behind);
  Status placePut(const Head& head, Window* window, std::span<const std::byte> behind);
  Result<Place> placeOf(Stream& stream, const Wanted& wanted);
  Status postPieces(Stream& stream);
  void letPlace(const Window& window);
  void postPlaced();
  Status testPlaced();
  Status land(Stream& stream, Flight& flight);
  Status testPieces(Stream& stream);
  Status retire(Desk& desk);
  bool beginBatch();
  bool batchFlushed();
  Status retireBatch(Desk& desk);
  void countGet(uint64_t bytes, bool whole);
  void countPut(const Head& head, bool signalled);
  // True: what was received there is visible to the GPU, now or before.
  bool flush(const Window& window, const void* at, core::Request** flushing);
  bool landed(Flight& flight);
  Error wrong(const std::string& why) const;

  core::RecvComm& comm_;
  const uint32_t rank_;  // the other end
  const uint32_t self_;
  const OwnMemory& own_;
  coll::Staging slots_;  // of heads: a ring
  core::MemoryHandle* memory_ = nullptr;
  coll::Staging nowhere_;  // made at need: for bytes whose window is gone
  core::MemoryHandle* nowhereMemory_ = nullptr;
  std::deque<core::Request*> headFlights_;
  uint64_t posted_ = 0;    // heads for which a receive was posted
  uint64_t sequence_ = 0;  // of the next head
  size_t goodbyes_ = 0;    // heard; at most kHeadsAtOnce
  bool broken_ = false;
  std::deque<Arrival> arrivals_;
  Batch batch_;
  Stream puts_{kPutTag, {}, {}, {}};
  Stream gets_{kGetTag, {}, {}, {}};
  bool places_ = false;  // some window was opened: receives stand for placed bytes
  std::deque<Placed> placed_;
  std::deque<core::Request*> placedFlights_;
};

}  // namespace weft::rma
