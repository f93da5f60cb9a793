// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstring>

#include "src/core/peering.h"
#include "src/core/posting.h"

// A peering's eager messages and the credits for them.
namespace weft::core {

// Most peers are never sent anything eagerly. Where no memory is left their messages wait for CTS.
std::byte* Peering::takeStaging() {
  if (staging_) return staging_.data();
  const size_t slotBytes = eagerSlotBytes(parts_.eagerMax());
  auto block = parts_.arena().take(kEagerSlotsPerPeering * slotBytes);
  if (!block) return nullptr;
  eagerWrites_.reserve(lanes_.size() * kEagerSlotsPerPeering);  // may fail, and nothing has changed then
  staging_ = block.take();
  for (size_t i = 0; i < lanes_.size(); i++) {
    for (int slot = 0; slot < static_cast<int>(kEagerSlotsPerPeering); slot++)
      eagerWrites_.push_back(
          eagerWrite(lanes_.at(i), slot, staging_.data() + static_cast<size_t>(slot) * slotBytes));
  }
  return staging_.data();
}

Work Peering::eagerWrite(const Lane& lane, int slot, std::byte* from) const {
  Note note;
  note.kind = NoteKind::eager;
  note.slot = remote_.eagerFirstSlot + static_cast<uint32_t>(slot);
  Work work;
  work.op = Opcode::writeNotify;
  work.delivered = wantsDelivered_;
  work.unsignaled = !signalsAll() && slot % kSignaledEvery != 0;
  work.imm = note.encode();
  work.local = from;
  work.memory = staging_.region()->rail(lane.rail());
  work.remote = remotePool_[lane.number()];
  work.remoteOffset = remote_.eagerOffset + static_cast<uint64_t>(slot) * remote_.eagerSlotBytes;
  work.context =
      workContext(WorkKind::aside, static_cast<uint32_t>(slot) << kAsideBits, number_, lane.number());
  return work;
}

// Its staging is as it was: it rests until the credit is back.
void Peering::sendEagerAgain(int slot) {
  if (!eagerOut_.beginAgain(slot)) return;
  EagerHeader header;
  std::memcpy(&header, eagerOut_.staging(slot), sizeof header);
  parts_.counters().eagerAgain++;
  parts_.counters().bytesAgain += header.size;
  const size_t bytes = sizeof header + header.size;
  Lane& lane = lanes_.quickest(bytes);
  eagerOut_.leftBy(slot, lane.number());
  lane.carriesAgain(bytes);
  Work work = eagerWrite(lane, slot, eagerOut_.staging(slot));
  work.length = bytes;
  const auto large = static_cast<uint32_t>(bytes) | static_cast<uint32_t>(slot) << kAsideBits;
  work.context = workContext(WorkKind::eagerAgain, large, number_, lane.number());
  submit(lane, work);
}

// A peer that has our half may send before we have its own, and what it sends to a comm that is closed
// meanwhile frees slots. Where its record lies is not known then: `take` tells it.
void Peering::returnCredits(bool again) {
  if (ending_ || opening() || !eagerIn_.startCredit(again)) return;
  const CreditRecord record = eagerIn_.record(remote_.peering);
  std::memcpy(credits_.data(), &record, sizeof record);
  Lane& lane = lanes_.quickest(sizeof record);
  Work work;
  work.local = credits_.data();
  work.length = sizeof record;
  work.memory = credits_.region()->rail(lane.rail());
  work.remote = remotePool_[lane.number()];
  work.remoteOffset = remote_.creditOffset;
  work.delivered = wantsDelivered_;
  work.context = workContext(WorkKind::credit, uint32_t{sizeof record}, number_, lane.number());
  eagerIn_.creditLeftBy(lane.number());
  submit(lane, work);
}

void Peering::creditLanded() {
  if (eagerIn_.creditLanded()) returnCredits(true);
}

void Peering::creditsAfterFence(const Lane& lane) {
  eagerIn_.creditFenced(lane.number());
  returnCredits(true);
}

}  // namespace weft::core
