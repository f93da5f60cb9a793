// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/flights.h"

// Posting and testing.
namespace weft::coll {

Flights::Post Flights::note(const core::Posted& posted, const core::Comm& comm, const Flight& flight) {
  if (!posted.ok) return fault_.set(flight.member, comm.error().message()), Post::failed;
  if (!posted.request) return Post::notNow;
  flights_.push_back(flight);
  flights_.back().request = posted.request;
  if (flight.block) flight.block->uses++;
  if (flight.sends) bytesSent_ += flight.bytes;
  return Post::posted;
}

Flights::Post Flights::send(int member, const std::byte* data, size_t bytes, core::MemoryHandle* memory,
                            int tag, Block* block) {
  core::SendComm& comm = members_.pipe(member)->sending();
  return note(comm.isend(data, bytes, tag, memory, nullptr), comm, {nullptr, bytes, member, true, block});
}

Flights::Post Flights::receive(int member, std::byte* data, size_t bytes, core::MemoryHandle* memory,
                               int tag) {
  core::RecvComm& comm = members_.pipe(member)->receiving();
  return note(comm.irecvOne(data, bytes, tag, memory, nullptr), comm,
              {nullptr, bytes, member, false, nullptr});
}

bool Flights::test(BlockPool& blocks) {
  while (!flights_.empty()) {
    const Flight& flight = flights_.front();
    int size = 0;
    const core::Tested tested = core::test(flight.request, &size);
    if (!tested.ok) return fault_.set(flight.member, core::errorOf(flight.request).message());
    if (!tested.done) return true;
    if (!flight.sends && static_cast<size_t>(size) != flight.bytes)
      return fault_.setSize(flight.member, static_cast<size_t>(size), flight.bytes);
    if (flight.block) blocks.release(flight.block);
    flights_.pop_front();
  }
  return true;
}

}  // namespace weft::coll
