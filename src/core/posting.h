// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "src/core/engine.h"

// How a peering hands work to its lanes: the part of sending that every message goes through, inline in those
// who send. Only inside the engine.
namespace weft::core {

// Writing to an engine that is gone is pointless, and over shared memory it faults.
inline void Peering::submit(Lane& lane, const Work& work, bool more) {
  if (lane.submit(work, more || halted_, engine_)) [[likely]]
    return;
  if (!awaitsFlush_) engine_.queueFlush(this);
  awaitsFlush_ = true;
}

inline void Peering::aside(Work* work, const Lane& lane) const {
  work->quiet = !failover_;
  work->delivered = wantsDelivered_;
  const WorkKind kind = failover_ ? WorkKind::aside : WorkKind::quiet;
  work->context = workContext(kind, static_cast<uint32_t>(work->length), number_, lane.number());
}

inline void Peering::postEager(int slot, size_t bytes, WorkKind kind) {
  Lane& lane = quickestLane(bytes);
  slotLanes_[static_cast<size_t>(slot)] = lane.number();
  if (kind == WorkKind::eagerAgain) [[unlikely]]
    lane.carriesAgain(bytes);
  Work work;
  work.op = Opcode::writeNotify;
  work.delivered = wantsDelivered_;
  Note note;
  note.kind = NoteKind::eager;
  note.slot = remote_.eagerFirstSlot + static_cast<uint32_t>(slot);
  work.imm = note.encode();
  work.local = eagerStaging(slot);
  work.length = bytes;
  work.memory = staging_.region()->rail(lane.rail());
  work.remote = remotePool_[lane.number()];
  work.remoteOffset = remote_.eagerOffset + static_cast<uint64_t>(slot) * remote_.eagerSlotBytes;
  const auto large = static_cast<uint32_t>(bytes) | static_cast<uint32_t>(slot) << kAsideBits;
  work.context = workContext(kind, large, number_, lane.number());
  submit(lane, work);
}

inline void Peering::sendEager(int slot, size_t bytes) {
  postEager(slot, bytes, WorkKind::aside);
}

}  // namespace weft::core
