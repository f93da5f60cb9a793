// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/rma/sender.h"

#include <algorithm>

// Posting heads and bodies, and the ends of both.
namespace weft::rma {

namespace {

constexpr size_t kBodiesAtOnce = 16;  // messages of one stream under way

}  // namespace

Result<std::unique_ptr<Sender>> Sender::create(core::SendComm& comm, uint32_t rank, const OwnMemory& memory) {
  auto sender = std::make_unique<Sender>(comm, rank, memory);
  comm.mayChange();
  TRY(sender->slots_, coll::Staging::create(kHeadsAtOnce * kSlotBytes));
  TRY(sender->memory_, sender->slots_.registerOn(comm));
  return sender;
}

uint64_t Sender::post(Message message) {
  count(message.head);
  heads_.push_back(std::move(message));
  return posted_++;
}

void Sender::count(const Head& head) {
  stats::OneSided* counters = comm_.oneSided();
  if (counters && head.kind == Kind::put) counters->countPut(head.bytes, head.signals);
}

void Sender::answer(const Body& body) {
  if (stats::OneSided* counters = comm_.oneSided()) counters->countGet(body.bytes, true);
  body.window->use(rank_);
  gets_.waiting.push_back(body);
}

bool Sender::idle() const {
  return heads_.empty() && headFlights_.empty() && puts_.waiting.empty() && puts_.flights.empty() &&
         gets_.waiting.empty() && gets_.flights.empty() && placed_.waiting.empty() && placed_.flights.empty();
}

uint64_t Sender::bytesWaiting() const {
  uint64_t bytes = 0;
  for (const Stream* stream : {&puts_, &gets_, &placed_}) {
    for (const Body& body : stream->waiting) bytes += body.bytes;
    for (const Flight& flight : stream->flights) bytes += flight.bytes;
  }
  return bytes;
}

void Sender::drop() {
  for (const Body& body : gets_.waiting) body.window->unuse(rank_);
  for (const Flight& flight : gets_.flights)
    if (flight.release) flight.release->unuse(rank_);
  heads_.clear();
  headFlights_.clear();
  for (Stream* stream : {&puts_, &gets_, &placed_}) {
    stream->waiting.clear();
    stream->flights.clear();
  }
}

bool Sender::advance() {
  for (Stream* stream : {&puts_, &gets_, &placed_})
    if (!testBodies(*stream)) return false;
  if (!testHeads() || !postHeads()) return false;
  for (Stream* stream : {&puts_, &gets_, &placed_})
    if (!postBodies(*stream)) return false;
  return testHeads();
}

// The bytes of a head lie in its slot until its send is over. Most heads leave eagerly and are over at once.
bool Sender::postHeads() {
  while (!heads_.empty() && headFlights_.size() < kHeadsAtOnce) {
    Message& message = heads_.front();
    std::byte* slot = slots_.data() + sequence_ % kHeadsAtOnce * kSlotBytes;
    const std::byte* inlined = message.inlined ? message.inlined : message.owned.data();
    message.head.sequence = sequence_;
    std::memcpy(slot, &message.head, kHeadBytes);
    if (message.head.inlined > 0) std::memcpy(slot + kHeadBytes, inlined, message.head.inlined);
    // Its bytes go along, in one call of the system where each post is one.
    const bool followed = message.body.bytes > 0 && !message.body.staged && !message.body.placed &&
                          puts_.waiting.empty() && puts_.flights.size() < kBodiesAtOnce;
    const size_t bytes = kHeadBytes + message.head.inlined;
    const core::Posted posted = followed ? comm_.isendFollowed(slot, bytes, kHeadTag, memory_)
                                         : comm_.isend(slot, bytes, kHeadTag, memory_, nullptr);
    if (!posted.ok) return false;
    if (!posted.request) return true;
    sequence_++;
    headFlights_.push_back({posted.request, 0, message.request, nullptr, false});
    if (message.body.bytes > 0) (message.body.placed ? placed_ : puts_).waiting.push_back(message.body);
    heads_.pop_front();
    if (followed && !postBodies(puts_)) return false;
    if (followed) comm_.leaveNow();
    if (!testHeads()) return false;
  }
  return true;
}

bool Sender::testHeads() {
  while (!headFlights_.empty()) {
    const core::Tested tested = core::test(headFlights_.front().request, nullptr);
    if (!tested.ok) return false;
    if (!tested.done) return true;
    if (Request* of = headFlights_.front().of) {
      of->headLeft = true;
      of->settle();
    }
    headFlights_.pop_front();
  }
  return true;
}

// The bytes of a GPU that the fabric does not reach are copied once, also where the comm does not take them
// at once.
Result<Sender::Piece> Sender::nextPiece(Stream& stream, Body& body) {
  const uint64_t bytes = std::min<uint64_t>(body.piece, body.bytes);
  if (!body.staged) return Piece{body.data, bytes, body.memory};
  TRY(const Bounce* bounce, stream.bounce.get(own_.errands(), own_.driver(), body.staged->memory.gpu, comm_));
  if (!bounce) return Piece();
  std::byte* slot = bounce->next();
  if (slot && !body.filled) {
    TRY(own_.read(*body.staged, body.data, slot, static_cast<size_t>(bytes)));
    body.filled = true;
  }
  return Piece{slot, bytes, bounce->memory()};
}

core::Posted Sender::postPiece(const Stream& stream, const Body& body, const Piece& piece) {
  const auto bytes = static_cast<size_t>(piece.bytes);
  if (body.placed)
    return comm_.isendPlaced(piece.data, bytes, stream.tag, piece.memory, body.toWindow, body.to);
  return comm_.isend(piece.data, bytes, stream.tag, piece.memory, nullptr);
}

bool Sender::postBodies(Stream& stream) {
  while (!fault_ && !stream.waiting.empty() && stream.flights.size() < kBodiesAtOnce) {
    Body& body = stream.waiting.front();
    const auto piece = nextPiece(stream, body);
    if (!piece) fault_ = piece.error();
    if (!piece || !piece->data) break;
    const core::Posted posted = postPiece(stream, body, *piece);
    if (!posted.ok) return false;
    if (!posted.request) return true;
    body.data += piece->bytes;
    body.to += piece->bytes;
    body.bytes -= piece->bytes;
    body.filled = false;
    if (body.staged) stream.bounce->take();
    stream.flights.push_back({posted.request, piece->bytes, body.request,
                              body.bytes == 0 ? body.window : nullptr, body.staged != nullptr});
    if (body.bytes == 0) stream.waiting.pop_front();
  }
  return !fault_;
}

bool Sender::testBodies(Stream& stream) {
  while (!stream.flights.empty()) {
    const Flight& flight = stream.flights.front();
    const core::Tested tested = core::test(flight.request, nullptr);
    if (!tested.ok) return false;
    if (!tested.done) return true;
    if (flight.slot) stream.bounce->giveBack();
    if (flight.release) flight.release->unuse(rank_);
    if (flight.of) {
      flight.of->left -= flight.bytes;
      flight.of->settle();
    }
    stream.flights.pop_front();
  }
  return true;
}

}  // namespace weft::rma
