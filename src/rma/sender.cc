// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/rma/sender.h"

#include <algorithm>

// Posting heads and bodies, and the ends of both.
namespace weft::rma {

namespace {

constexpr size_t kBodiesAtOnce = 16;  // messages of one stream under way

}  // namespace

Result<std::unique_ptr<Sender>> Sender::create(core::SendComm& comm) {
  auto sender = std::make_unique<Sender>(comm);
  TRY(sender->slots_, coll::Staging::create(kHeadsAtOnce * kSlotBytes));
  TRY(sender->memory_, sender->slots_.registerOn(comm));
  return sender;
}

void Sender::answer(const Body& body) {
  body.window->inUse++;
  gets_.waiting.push_back(body);
}

bool Sender::idle() const {
  return heads_.empty() && headFlights_.empty() && puts_.waiting.empty() && puts_.flights.empty() &&
         gets_.waiting.empty() && gets_.flights.empty();
}

void Sender::drop() {
  for (const Body& body : gets_.waiting) body.window->inUse--;
  for (const Flight& flight : gets_.flights)
    if (flight.release) flight.release->inUse--;
  heads_.clear();
  headFlights_.clear();
  for (Stream* stream : {&puts_, &gets_}) {
    stream->waiting.clear();
    stream->flights.clear();
  }
}

bool Sender::advance() {
  for (Stream* stream : {&puts_, &gets_})
    if (!testBodies(*stream)) return false;
  if (!testHeads() || !postHeads()) return false;
  for (Stream* stream : {&puts_, &gets_})
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
    const core::Posted posted =
        comm_.isend(slot, kHeadBytes + message.head.inlined, kHeadTag, memory_, nullptr);
    if (!posted.ok) return false;
    if (!posted.request) return true;
    sequence_++;
    headFlights_.push_back({posted.request, 0, message.request, nullptr});
    if (message.body.bytes > 0) puts_.waiting.push_back(message.body);
    heads_.pop_front();
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

bool Sender::postBodies(Stream& stream) {
  while (!stream.waiting.empty() && stream.flights.size() < kBodiesAtOnce) {
    Body& body = stream.waiting.front();
    const uint64_t bytes = std::min<uint64_t>(kPieceBytes, body.bytes);
    const core::Posted posted =
        comm_.isend(body.data, static_cast<size_t>(bytes), stream.tag, body.memory, nullptr);
    if (!posted.ok) return false;
    if (!posted.request) return true;
    body.data += bytes;
    body.bytes -= bytes;
    stream.flights.push_back({posted.request, bytes, body.request, body.bytes == 0 ? body.window : nullptr});
    if (body.bytes == 0) stream.waiting.pop_front();
  }
  return true;
}

bool Sender::testBodies(Stream& stream) {
  while (!stream.flights.empty()) {
    const Flight& flight = stream.flights.front();
    const core::Tested tested = core::test(flight.request, nullptr);
    if (!tested.ok) return false;
    if (!tested.done) return true;
    if (flight.release) flight.release->inUse--;
    if (flight.of) {
      flight.of->left -= flight.bytes;
      flight.of->settle();
    }
    stream.flights.pop_front();
  }
  return true;
}

}  // namespace weft::rma
