// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cstring>

#include "src/agg/group.h"
#include "src/coll/tree.h"

// A group's talk with its parent daemon, where it is a child like any other. Functions of AggGroup, on its
// thread.
namespace weft::agg {

// Sends heads and chunks in the order of the operations. A head leaves when all children agree on it, its
// chunks when they are reduced.
bool AggGroup::raiseReady(bool* moved) {
  while (has(raising_)) {
    Record& now = record(raising_);
    if (now.headSent && now.raised == now.steps) {
      raising_++;
      continue;
    }
    if (now.head.inlined ? now.reduced == 0 : (now.headSent && now.raised >= now.reduced)) return true;
    bool posted = false;
    const bool fine = now.headSent ? raiseChunk(now, raising_, &posted) : raiseHead(now, raising_, &posted);
    if (!fine) return false;
    if (!posted) return true;
    *moved = true;
  }
  return true;
}

// The head is written into the room in front of the inline data, so that both leave in one message.
bool AggGroup::raiseHead(Record& record, uint64_t index, bool* posted) {
  std::byte* at = smallOf(index) - coll::kOperationHeadBytes;
  const Bytes head = record.head.encode();
  std::memcpy(at, head.data(), head.size());
  const size_t bytes = head.size() + (record.head.inlined ? record.head.bytes : 0);
  const core::Posted sent =
      options_.parent->pipe->sending().isend(at, bytes, coll::kHeadTag, smallUpHandle_, nullptr);
  if (!sent.ok) return blameParent();
  *posted = sent.request != nullptr;
  if (!*posted) return true;
  record.headSent = true;
  if (record.head.inlined) record.raised = 1;
  raised_.push_back({sent.request, index, 0, !record.head.inlined});
  return true;
}

bool AggGroup::raiseChunk(Record& record, uint64_t index, bool* posted) {
  const coll::Span chunk = chunkOf(record, record.raised);
  const core::Posted sent = options_.parent->pipe->sending().isend(
      resultOf(record.firstChunk + record.raised), chunk.bytes(), coll::kDataTag, upHandle_, nullptr);
  if (!sent.ok) return blameParent();
  *posted = sent.request != nullptr;
  if (!*posted) return true;
  raised_.push_back({sent.request, index, record.raised, false});
  record.raised++;
  return true;
}

bool AggGroup::testRaised(bool* moved) {
  while (!raised_.empty()) {
    const core::Tested tested = core::test(raised_.front().request, nullptr);
    if (!tested.ok) return blameParent();
    if (!tested.done) return true;
    raised_.pop_front();
    *moved = true;
  }
  return true;
}

// True when that step has left, so that its slot may be written again.
bool AggGroup::raisedUpTo(uint64_t operation, size_t step) const {
  if (raised_.empty()) return true;
  const UpFlight& oldest = raised_.front();
  return oldest.operation > operation ||
         (oldest.operation == operation && !oldest.head && oldest.step > step);
}

// Receives the parent's results in order: a receive is posted for each slot that is free.
bool AggGroup::takeFromParent(bool* moved) {
  core::RecvComm& from = options_.parent->pipe->receiving();
  while (has(lowerAsked_)) {
    Record& now = record(lowerAsked_);
    if (now.asked == now.steps) {
      lowerAsked_++;
      continue;
    }
    const uint64_t chunk = now.firstChunk + now.asked;
    if (!now.head.inlined && chunk >= freed_ + options_.window) break;
    std::byte* to = now.head.inlined ? smallDownOf(lowerAsked_) : downOf(chunk);
    const core::Posted posted = from.irecvOne(to, chunkOf(now, now.asked).bytes(), coll::kResultTag,
                                              now.head.inlined ? smallDownHandle_ : downHandle_, nullptr);
    if (!posted.ok) return blameParent();
    if (!posted.request) break;
    lowered_.push_back({posted.request, lowerAsked_, now.asked, false});
    now.asked++;
    *moved = true;
  }
  while (!lowered_.empty()) {
    Record& now = record(lowered_.front().operation);
    int size = 0;
    const core::Tested tested = core::test(lowered_.front().request, &size);
    if (!tested.ok) return blameParent();
    if (!tested.done) return true;
    const size_t wanted = chunkOf(now, lowered_.front().step).bytes();
    if (static_cast<size_t>(size) != wanted) return blameParent(size, wanted);
    now.ready++;
    lowered_.pop_front();
    *moved = true;
  }
  return true;
}

}  // namespace weft::agg
