// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/posting.h"
#include "src/core/send_comm.h"

// Direct messages as their sender sees them (recv_comm_direct.cc has the other end): a message leaves before
// its receive is known, in one work, as long as the window that the receiver granted holds it. It is finished
// when the fabric has its bytes. Those that follow each other closely leave together. Only inside the engine.
namespace weft::core {

namespace {

// Of those that leave together the bytes fill whole packets, where each alone would end in a short one.
constexpr size_t kMostDirectTogether = 256 << 10;

}  // namespace

// Straight from the caller's memory to where its receiver says. A CTS that is there for it is dropped: by it,
// the receiver would learn that messages need their CTS.
Request* SendCommImpl::sendDirect(const Send& send, TagState& tag) {
  Request* request = begin(send, tag.k);
  if (!request) [[unlikely]]
    return nullptr;
  request->record = stats_.posted(send.tag, tag.k, send.bytes, stats::Way::direct);
  if (ctsFor(tag)) dropCts(tag);
  tag.k = engine().sequences().next(tag.k);
  window_.take(send.bytes);
  awaitSent(request, send);
  request->transfer = {.data = send.data};
  postDirect(request);
  if (sums_.concerns(request->sequence[0])) [[unlikely]]
    sum(*request);
  engine().counters().directOut++;
  return request;
}

void SendCommImpl::postDirect(Request* request) {
  Lane& lane = peering().lane(0);
  request->remaining = request->segmentCount = 1;
  request->segments[0] = {lane.number(), 0, false, static_cast<uint32_t>(request->bytes)};
  const MessageLabel label = labelOf(
      DirectHeader{remoteNumber_, static_cast<uint32_t>(request->tags[0]), request->sequence[0], sequence_});
  Work work;
  work.op = Opcode::message;
  work.imm = label.imm;
  work.remote = label.words;
  // The seam's pointer is not const because reads write through it; a message is only read.
  work.local = const_cast<void*>(request->transfer.data);
  work.length = request->bytes;
  work.memory = request->bytes == 0 ? nullptr : request->memory->region->rail(lane.rail());
  work.context = workContext(WorkKind::segment, request->index, request->generation, lane.number());
  if (engine().gathersEager() && peering().follows(request->bytes, kMostDirectTogether)) {
    request->departure = peering().submitLater(lane, work);
  } else {
    peering().submit(lane, work);
  }
}

Place SendCommImpl::windowReturned(const WindowReturn& window) {
  if (!window_.giveBack(window.returned)) return {.refusal = "it gave back more of a window than was used"};
  return {};
}

}  // namespace weft::core
