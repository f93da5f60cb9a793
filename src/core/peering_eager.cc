// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstring>

#include "src/core/engine.h"
#include "src/core/peering.h"
#include "src/core/posting.h"

// A peering's eager messages and the credits for them.
namespace weft::core {

void Peering::prepareEager() {
  for (const auto& lane : lanes_) {
    for (int slot = 0; slot < static_cast<int>(kEagerSlotsPerPeering); slot++)
      eagerWrites_.push_back(eagerWrite(*lane, slot));
  }
}

Work Peering::eagerWrite(const Lane& lane, int slot) const {
  Note note;
  note.kind = NoteKind::eager;
  note.slot = remote_.eagerFirstSlot + static_cast<uint32_t>(slot);
  Work work;
  work.op = Opcode::writeNotify;
  work.delivered = wantsDelivered_;
  work.quiet = !failover_ && slot % kVouchingSlots != 0;
  work.imm = note.encode();
  work.local = eagerStaging(slot);
  work.memory = staging_.region()->rail(lane.rail());
  work.remote = remotePool_[lane.number()];
  work.remoteOffset = remote_.eagerOffset + static_cast<uint64_t>(slot) * remote_.eagerSlotBytes;
  work.context =
      workContext(WorkKind::aside, static_cast<uint32_t>(slot) << kAsideBits, number_, lane.number());
  return work;
}

void Peering::learnCredits() {
  CreditLine line;
  if (!readWhole(creditLanding(), &line) || line.peering != number_) return;
  if (static_cast<int32_t>(line.sequence - creditsRead_) <= 0) return;  // an older line that came late
  creditsRead_ = line.sequence;
  slotsFreed_ = line.freed;
}

// Its staging is as it was: it rests until the credit is back.
void Peering::sendEagerAgain(int slot) {
  learnCredits();
  if (!((slotsUsed_ ^ slotsFreed_) >> slot & 1)) return;
  EagerHeader header;
  std::memcpy(&header, eagerStaging(slot), sizeof header);
  writtenAgain_ |= uint64_t{1} << slot;
  engine_.counters().eagerAgain++;
  engine_.counters().bytesAgain += header.size;
  const size_t bytes = sizeof header + header.size;
  Lane& lane = quickestLane(bytes);
  slotLanes_[static_cast<size_t>(slot)] = lane.number();
  lane.carriesAgain(bytes);
  Work work = eagerWrite(lane, slot);
  work.length = bytes;
  const auto large = static_cast<uint32_t>(bytes) | static_cast<uint32_t>(slot) << kAsideBits;
  work.context = workContext(WorkKind::eagerAgain, large, number_, lane.number());
  submit(lane, work);
}

// One line at a time: of two that are under way the older one may land last, and hide what the newer one
// told.
void Peering::returnCredits(bool again) {
  if ((freedUntold_ == 0 && !again) || ending_ || localSlots_ == 0) return;
  creditDue_ = creditFlies_;
  if (creditDue_) return;
  creditFlies_ = true;
  freedUntold_ = 0;
  CreditLine line;
  line.sequence = ++creditSequence_;
  line.peering = remote_.peering;
  line.freed = freedHere_;
  seal(&line);
  std::memcpy(creditStaging(), &line, sizeof line);
  Lane& lane = quickestLane(sizeof line);
  Work work;
  work.local = creditStaging();
  work.length = sizeof line;
  work.memory = staging_.region()->rail(lane.rail());
  work.remote = remotePool_[lane.number()];
  work.remoteOffset = remote_.creditOffset;
  work.delivered = wantsDelivered_;
  work.context = workContext(WorkKind::credit, uint32_t{sizeof line}, number_, lane.number());
  creditLane_ = lane.number();
  submit(lane, work);
}

void Peering::creditLanded() {
  creditFlies_ = false;
  if (creditDue_) returnCredits(true);
}

// What it carried is known to have landed, or never will.
void Peering::creditsAfterFence(const Lane& lane) {
  if (creditLane_ == lane.number()) creditFlies_ = false;
  returnCredits(true);
}

}  // namespace weft::core
