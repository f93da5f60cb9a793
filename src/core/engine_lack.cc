// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/reserve.h"
#include "src/core/engine.h"
#include "src/core/recv_comm.h"

// Memory that runs out while a poll hands out what it found. The call that polls fails. What was found behind
// that is handed out by the next poll: no queue has it any more. The one completion that could not be taken
// is lost with its comm, which ends.
namespace weft::core {

void Engine::keep(size_t rail, std::span<const Completion> rest) {
  CommBase* comm = commOf(rest.front());
  if (comm) comm->end({Ending::By::us, Error(Code::resources, "taking what has come", "memory ran out")});
  const ReceivedNote note(rest.front().imm);
  if (rest.front().kind == CompletionKind::notified && note.kind() == NoteKind::eager && comm)
    comm->asRecv()->loseEager(note.slot() % kEagerSlotsPerPeering);
  for (const Completion& completion : rest.subspan(1)) kept_.push_back({rail, completion});
  onlyQueue_ = nullptr;  // the pass looks here
}

// Within a poll, too.
void Engine::growCtsWriters() {
  const MustNotFail nobodyToTell;
  ctsWriters_.reserve(2 * ctsWriters_.size() + 1);
}

void Engine::handOutKept() {
  while (!kept_.empty()) {
    const Kept next = kept_.front();
    kept_.erase(kept_.begin());
    dispatchEach(next.rail, {&next.completion, 1});
  }
  if (queues_.size() == 1) onlyQueue_ = queues_.front();
}

CommBase* Engine::commOf(const Completion& completion) {
  if (completion.kind == CompletionKind::notified) return commOf(ReceivedNote(completion.imm));
  if (completion.kind == CompletionKind::landed) return commOfLanded(completion.context);
  const bool segment = static_cast<WorkKind>(completion.context >> 60) == WorkKind::segment;
  return completion.kind == CompletionKind::sent && segment
             ? requests_[static_cast<uint32_t>(completion.context)].comm
             : nullptr;
}

CommBase* Engine::commOf(ReceivedNote note) {
  if (note.kind() != NoteKind::eager)
    return slots_.contains(note.slot()) ? slots_[note.slot()].comm : nullptr;
  Peering* peering = peeringByNumber(note.slot() / kEagerSlotsPerPeering);
  const std::byte* at = peering ? peering->eagerIn().at(note.slot() % kEagerSlotsPerPeering) : nullptr;
  EagerHeader header;
  CommBase* comm = at && readHeader(at, &header) ? comms_.find(header.comm) : nullptr;
  return comm && comm->asRecv() && &comm->peering() == peering ? comm : nullptr;
}

CommBase* Engine::commOfLanded(uint64_t context) {
  const auto index = static_cast<uint32_t>(context);
  if (!isEarly(context)) {
    const uint32_t slot = index & (kMaxSlots - 1);
    return slots_.contains(slot) ? slots_[slot].comm : nullptr;
  }
  Peering* peering = peeringByNumber(peeringOfEarly(context));
  return peering && peering->early().contains(index) ? peering->early().at(index).comm : nullptr;
}

}  // namespace weft::core
