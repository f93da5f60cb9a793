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
  EagerRoute& route = eagerRoutes_[lane.number()];
  route.work.imm = eagerImm_ + static_cast<uint32_t>(slot) * kNoteSlotStep;
  route.work.local = eagerStaging(slot);
  route.work.length = bytes;
  route.work.remoteOffset = remote_.eagerOffset + static_cast<uint64_t>(slot) * remote_.eagerSlotBytes;
  const auto large = static_cast<uint32_t>(bytes) | static_cast<uint32_t>(slot) << kAsideBits;
  route.work.context = route.context | large;
  if (kind == WorkKind::eagerAgain) [[unlikely]] {
    lane.carriesAgain(bytes);
    route.work.context = workContext(kind, large, number_, lane.number());
  }
  submit(lane, route.work);
}

inline void Peering::sendEager(int slot, size_t bytes) {
  postEager(slot, bytes, WorkKind::aside);
}

}  // namespace weft::core
