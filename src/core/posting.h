// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "src/core/peering.h"
#include "src/core/work_context.h"

// How a peering hands work to its lanes: the part of sending that every message goes through, inline in those
// who send. Only inside the engine.
namespace weft::core {

// Writing to an engine that is gone is pointless, and over shared memory it faults.
inline void Peering::submit(Lane& lane, const Work& work, bool more) {
  if (lane.submit(work, more || halted(), parts_)) [[likely]]
    return;
  gathering_.hurry();
  awaitFlush();
}

inline void Peering::awaitFlush() {
  if (!awaitsFlush_) parts_.queueFlush(this);
  awaitsFlush_ = true;
}

inline uint32_t Peering::submitLater(Lane& lane, const Work& work) {
  if (!lane.submit(work, true, parts_)) awaitFlush();
  return gathering_.add(parts_.pass());
}

inline void Peering::aside(Work* work, const Lane& lane) const {
  work->unsignaled = !signalsAll();
  work->delivered = wantsDelivered_;
  const WorkKind kind = signalsAll() ? WorkKind::aside : WorkKind::unsignaled;
  work->context = workContext(kind, static_cast<uint32_t>(work->length), number_, lane.number());
}

// The peer returns credits for what it has, so nothing is held back any more where they are used up.
inline bool Peering::hasEagerSlot() {
  if (eagerOut_.hasSlot()) [[likely]]
    return true;
  gathering_.hurry();
  return false;
}

inline bool Peering::follows(size_t bytes, size_t most) {
  return gathering_.waits(parts_.pass()) && bytes <= most;
}

inline const Work& Peering::eagerWork(const Lane& lane, int slot, size_t bytes) {
  eagerOut_.leftBy(slot, lane.number());
  Work& work = eagerWrites_[size_t{lane.number()} * kEagerSlotsPerPeering + static_cast<size_t>(slot)];
  work.length = bytes;
  work.context = withBytes(work.context, bytes);
  return work;
}

inline void Peering::sendEager(int slot, size_t bytes) {
  Lane& lane = lanes_.quickest(bytes);
  submit(lane, eagerWork(lane, slot, bytes));
}

inline void Peering::sendEagerFollowed(int slot, size_t bytes) {
  Lane& lane = lanes_.quickest(bytes);
  if (!lane.submit(eagerWork(lane, slot, bytes), true, parts_)) awaitFlush();
}

inline uint32_t Peering::sendEagerLater(int slot, size_t bytes) {
  Lane& lane = lanes_.quickest(bytes);
  return submitLater(lane, eagerWork(lane, slot, bytes));
}

}  // namespace weft::core
