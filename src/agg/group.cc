// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/agg/group.h"

#include <algorithm>
#include <cstring>
#include <sys/socket.h>

#include "src/base/log.h"
#include "src/base/reserve.h"
#include "src/coll/tree.h"

// The stages of a group: receive, agree, reduce, deliver, retire. The parent's side is in uplink.cc.
namespace weft::agg {

using coll::OperationHead;
using coll::Span;

size_t AggGroup::memoryBytes(size_t children, size_t chunkBytes, size_t window) {
  return (children + 2) * window * chunkBytes + (2 * children + 2) * kHeads * kHeadSlot;
}

Result<std::unique_ptr<AggGroup>> AggGroup::create(GroupOptions options, std::vector<Child> children) {
  auto group = std::make_unique<AggGroup>(std::move(options));
  TRY(group->prepare(std::move(children)));
  if (group->options_.parent) TRY(group->prepareParent());
  return group;
}

void AggGroup::close() {
  const MustNotFail closing;
  if (options_.parent) options_.parent->leave(options_.parent->pipe->clock());
  for (const Child& child : children_)
    if (child.pipe) child.pipe->close();
  if (options_.parent) options_.parent->pipe->close();
}

// The slots of child i begin at slot i * window. The results and the parent's results follow the last child's
// slots.
Status AggGroup::prepare(std::vector<Child> children) {
  children_ = std::move(children);
  std::sort(children_.begin(), children_.end(),
            [](const Child& a, const Child& b) { return a.order < b.order; });
  const size_t each = options_.window * options_.chunkBytes;
  TRY(memory_, coll::Staging::create((children_.size() + 2) * each));
  TRY(small_, coll::Staging::create(2 * kHeads * kHeadSlot));
  for (size_t i = 0; i < children_.size(); i++) {
    Child& child = children_[i];
    TRY(child.headMemory, coll::Staging::create(kHeads * kHeadSlot));
    TRY(core::MemoryHandle * headHandle, child.headMemory.registerOn(child.pipe->receiving()));
    TRY(child.dataHandle, memory_.registerOn(child.pipe->receiving()));
    TRY(child.resultHandle, memory_.registerOn(child.pipe->sending()));
    TRY(child.smallHandle, small_.registerOn(child.pipe->sending()));
    child.heads.open({&child.pipe->receiving(), coll::kHeadTag, child.headMemory.data(), kHeadSlot, kHeadSlot,
                      kHeads, headHandle});
    child.data.open({&child.pipe->receiving(), coll::kDataTag, memory_.data() + i * each, options_.chunkBytes,
                     options_.chunkBytes, options_.window, child.dataHandle});
  }
  return {};
}

Status AggGroup::prepareParent() {
  const coll::Pipe& pipe = *options_.parent->pipe;
  TRY(upHandle_, memory_.registerOn(pipe.sending()));
  TRY(smallUpHandle_, small_.registerOn(pipe.sending()));
  TRY(downHandle_, memory_.registerOn(pipe.receiving()));
  TRY(smallDownHandle_, small_.registerOn(pipe.receiving()));
  return {};
}

std::byte* AggGroup::resultOf(uint64_t chunk) const {
  const size_t each = options_.window * options_.chunkBytes;
  return memory_.data() + children_.size() * each + chunk % options_.window * options_.chunkBytes;
}

std::byte* AggGroup::downOf(uint64_t chunk) const {
  return isRoot() ? resultOf(chunk) : resultOf(chunk) + options_.window * options_.chunkBytes;
}

std::byte* AggGroup::smallOf(uint64_t operation) const {
  return small_.data() + operation % kHeads * kHeadSlot + coll::kOperationHeadBytes;
}

Span AggGroup::chunkOf(const Record& record, size_t step) const {
  if (record.head.inlined) return {0, record.head.bytes};
  return {step * options_.chunkBytes, std::min<size_t>((step + 1) * options_.chunkBytes, record.head.bytes)};
}

namespace {

std::string leaving(const Child& child) {
  return child.name + " left the group or failed";
}

}  // namespace

// Ends the group: a child sent nonsense. Returns false, for the callers.
bool AggGroup::blame(const Child& child, const std::string& why) {
  end({format("%s%s", child.name.c_str(), why.c_str())});
  return false;
}

// Ends the group: a child's connection failed.
bool AggGroup::lose(const Child& child) {
  end({leaving(child), true});
  return false;
}

// Where the parent has told a reason, that reason is better than ours.
bool AggGroup::blameParent() {
  end(options_.parent->pipe->look() == coll::Pipe::State::alarmed
          ? options_.parent->pipe->alarm()
          : coll::Alarm{format("the aggregation daemon %s is gone", options_.parent->daemon.c_str()), true});
  return false;
}

bool AggGroup::blameParent(int bytes, size_t wanted) {
  end({format("the aggregation daemon %s sent %d bytes where %zu were expected",
              options_.parent->daemon.c_str(), bytes, wanted),
       true});
  return false;
}

// The first reason stands: later failures follow from it.
bool AggGroup::enter(State next, const std::string& why) {
  if (next <= state_) return false;
  if (why_.empty()) {
    why_ = why;
    WEFT_LOG(info, "group %016llx of %u ranks ended: %s", static_cast<unsigned long long>(options_.id),
             options_.ranks, why_.c_str());
  }
  state_ = next;
  return true;
}

void AggGroup::end(const coll::Alarm& why) {
  if (!enter(State::broken, why.reason)) return;
  const Bytes alarm = coll::Alarm{why_, why.treeLost}.encode();
  for (Child& child : children_)
    if (!child.gone) child.pipe->raiseAlarm(alarm);
  if (options_.parent) options_.parent->pipe->raiseAlarm(alarm);
}

// The parent sees that this daemon leaves, and tells it to nobody either.
void AggGroup::part(const Child& child) {
  if (!enter(State::parting, leaving(child))) return;
  if (options_.parent) options_.parent->part();
}

// A child that leaves closes its link first, and waits for ours: we have receives posted at its end.
void AggGroup::dismiss(Child& child) {
  child.gone = true;
  child.pipe->raiseAlarm(coll::Alarm{}.encode());  // ends the receive that it still has posted for an alarm
  child.pipe->close();
  child.pipe.reset();
  ::shutdown(child.link.get(), SHUT_RDWR);
}

// The stages in the order in which data passes them. A stage that fails has ended the group.
bool AggGroup::progress() {
  if (hasEnded()) return false;
  bool moved = false;
  bool fine = receiveAll(&moved) && takeHeads(&moved) && reduceReady(&moved);
  if (fine && !isRoot()) fine = testRaised(&moved) && raiseReady(&moved) && takeFromParent(&moved);
  for (Child& child : children_)
    if (fine) fine = deliver(child, &moved);
  if (fine) retire();
  return moved;
}

// Heads may come kHeads operations ahead of their data, and data by the window of chunks. No more receives
// are posted, so a child cannot send more. The child whose data completes a step last counts as late.
bool AggGroup::receiveAll(bool* moved) {
  for (Child& child : children_) {
    const uint64_t before = child.data.arrived();
    const bool fine =
        child.heads.progress(first_ + kHeads, moved) && child.data.progress(freed_ + options_.window, moved);
    if (!fine) {
      if (child.pipe->look() == coll::Pipe::State::alarmed) return end(child.pipe->alarm()), false;
      return lose(child);
    }
    if (child.data.arrived() == before) continue;
    const bool last = std::all_of(children_.begin(), children_.end(), [&](const Child& other) {
      return other.data.arrived() >= child.data.arrived();
    });
    if (last) child.late++;
  }
  return true;
}

// An operation begins when every child's head of it is here. The heads have to be equal.
bool AggGroup::takeHeads(bool* moved) {
  while (operations_.size() < kHeads) {
    const uint64_t next = first_ + operations_.size();
    std::optional<OperationHead> agreed;
    for (Child& child : children_) {
      if (child.heads.arrived() <= next) return true;
      const std::span<const std::byte> bytes(child.heads.slot(next), child.heads.size(next));
      if (bytes.size() < coll::kOperationHeadBytes)
        return blame(child, " sent something that is no operation");
      const auto head = coll::decodeOperation(bytes.first(coll::kOperationHeadBytes));
      if (!head) return blame(child, ": " + head.error().message());
      if (!agreed) agreed = *head;
      if (*head != *agreed)
        return blame(child, format(" started %s, and %s %s", coll::describe(*head).c_str(),
                                   children_[0].name.c_str(), coll::describe(*agreed).c_str()));
    }
    if (!openRecord(*agreed)) return false;
    *moved = true;
  }
  return true;
}

// Chunks are numbered across all operations, so that a slot belongs to one chunk at a time. Data that came
// with the head takes no slot.
bool AggGroup::openRecord(const OperationHead& head) {
  const bool reduces =
      head.kind == coll::OperationKind::allReduce || head.kind == coll::OperationKind::reduceScatter;
  const auto cut = [&](uint64_t bytes) { return bytes % coll::elementBytes(head.type) != 0; };
  if (reduces && (!coll::canReduce(head.type, head.op) || cut(head.bytes) || cut(head.bytesPerRank) ||
                  cut(head.windowOffset)))
    return end({"there is no such reduction: " + coll::describe(head)}), false;
  Record record;
  record.head = head;
  record.steps = head.inlined ? 1 : (head.bytes + options_.chunkBytes - 1) / options_.chunkBytes;
  record.firstChunk = chunks_;
  record.undelivered.assign(record.steps, static_cast<uint32_t>(children_.size()));
  if (!head.inlined) chunks_ += record.steps;
  operations_.push_back(std::move(record));
  statistics_.operations++;
  return true;
}

// A step is reduced when every child's part of it is here and the slot of its result is free: the step that
// had the slot before has been delivered to every child.
bool AggGroup::reduceReady(bool* moved) {
  while (has(reducing_)) {
    Record& now = record(reducing_);
    if (now.reduced == now.steps) {
      reducing_++;
      continue;
    }
    if (!now.head.inlined) {
      const uint64_t chunk = now.firstChunk + now.reduced;
      if (chunk >= freed_ + options_.window) return true;
      for (const Child& child : children_)
        if (child.data.arrived() <= chunk) return true;
    }
    if (!reduceStep(now, now.reduced)) return false;
    now.reduced++;
    if (isRoot()) now.ready = now.reduced;
    *moved = true;
  }
  return true;
}

// A daemon sends whole chunks; a rank sends its own part of a gather only.
bool AggGroup::expectSize(size_t child, const Record& record, Span chunk, size_t size) {
  const Child& from = children_[child];
  const size_t wanted = from.daemon ? chunk.bytes() : coll::sentOf(record.head, from.order, chunk).bytes();
  statistics_.bytesIn += size;
  if (size == wanted) return true;
  return blame(from, format(" sent %zu bytes where %zu were expected, of %s", size, wanted,
                            coll::describe(record.head).c_str()));
}

bool AggGroup::reduceStep(Record& record, size_t step) {
  const Span chunk = chunkOf(record, step);
  inputs_.clear();
  for (size_t i = 0; i < children_.size(); i++) {
    Child& child = children_[i];
    const uint64_t at = record.head.inlined ? reducing_ : record.firstChunk + step;
    const InboundRing& ring = record.head.inlined ? child.heads : child.data;
    const size_t head = record.head.inlined ? coll::kOperationHeadBytes : 0;
    if (!expectSize(i, record, chunk, ring.size(at) - head)) return false;
    inputs_.push_back(ring.slot(at) + head);
  }
  combine(record, chunk, record.head.inlined ? smallOf(reducing_) : resultOf(record.firstChunk + step));
  statistics_.chunks++;
  return !hasEnded();
}

// Reductions fold the children in their order. In a gather each rank sends only its own part, which is copied
// to its place. The chunks of other daemons are zero outside their parts, so they are combined by "or".
void AggGroup::combine(const Record& record, Span chunk, std::byte* to) {
  const bool reduces = record.head.kind == coll::OperationKind::allReduce ||
                       record.head.kind == coll::OperationKind::reduceScatter;
  if (chunk.bytes() == 0) return;
  if (reduces) {
    if (!coll::reduce(record.head.type, record.head.op, inputs_, to, chunk.bytes()))
      end({"a chunk is no number of whole elements: " + coll::describe(record.head)});
    return;
  }
  std::memset(to, 0, chunk.bytes());
  for (size_t i = 0; i < children_.size(); i++) {
    const Child& child = children_[i];
    if (child.daemon) {
      const void* both[] = {to, inputs_[i]};
      (void)coll::reduce(coll::ElementType::u8, coll::ReduceOp::bor, both, to, chunk.bytes());
      continue;
    }
    const Span piece = coll::sentOf(record.head, child.order, chunk);
    std::memcpy(to + (piece.begin - chunk.begin), inputs_[i], piece.bytes());
  }
}

// Results leave in order, to each child at its own pace. A slow child holds up the slots, and so in the end
// the other children, but never the order of their results.
bool AggGroup::deliver(Child& child, bool* moved) {
  while (!child.flights.empty()) {
    const Child::Flight& flight = child.flights.front();
    const core::Tested tested = core::test(flight.request, nullptr);
    if (!tested.ok) return lose(child);
    if (!tested.done) break;
    record(flight.operation).undelivered[flight.step]--;
    child.flights.pop_front();
    *moved = true;
  }
  while (has(child.resultOperation)) {
    Record& now = record(child.resultOperation);
    if (child.resultStep == now.steps) {
      child.resultOperation++;
      child.resultStep = 0;
      continue;
    }
    if (child.resultStep >= now.ready) return true;
    bool posted = false;
    if (!deliverStep(child, now, &posted)) return false;
    if (!posted) return true;
    *moved = true;
  }
  return true;
}

bool AggGroup::deliverStep(Child& child, Record& record, bool* posted) {
  const size_t step = child.resultStep;
  const Span chunk = chunkOf(record, step);
  const Span piece = child.daemon ? chunk : coll::receivedOf(record.head, child.order, chunk);
  const std::byte* from =
      record.head.inlined ? smallDownOf(child.resultOperation) : downOf(record.firstChunk + step);
  const core::Posted sent =
      child.pipe->sending().isend(from + (piece.begin - chunk.begin), piece.bytes(), coll::kResultTag,
                                  record.head.inlined ? child.smallHandle : child.resultHandle, nullptr);
  if (!sent.ok) return lose(child);
  *posted = sent.request != nullptr;
  if (!*posted) return true;
  child.flights.push_back({sent.request, child.resultOperation, step});
  child.resultStep++;
  statistics_.bytesOut += piece.bytes();
  return true;
}

std::byte* AggGroup::smallDownOf(uint64_t operation) const {
  return isRoot() ? smallOf(operation) : smallOf(operation) + kHeads * kHeadSlot;
}

// Frees slots in their order, and operations in theirs. A step is finished when every child has its result
// and the parent has its part.
void AggGroup::retire() {
  while (!operations_.empty()) {
    Record& oldest = operations_.front();
    while (oldest.finished < oldest.steps && oldest.undelivered[oldest.finished] == 0 &&
           (isRoot() || raisedUpTo(first_, oldest.finished))) {
      oldest.finished++;
      if (!oldest.head.inlined) freed_++;
    }
    const bool done = oldest.finished == oldest.steps && reducing_ > first_ &&
                      (isRoot() || (raising_ > first_ && lowerAsked_ > first_));
    if (!done) return;
    if (!std::all_of(children_.begin(), children_.end(),
                     [&](const Child& child) { return child.resultOperation > first_; }))
      return;
    operations_.pop_front();
    first_++;
  }
}

// Something was started that no child may be absent from.
bool AggGroup::waitsForAll() const {
  const uint64_t begun = first_ + operations_.size();
  return std::any_of(operations_.begin(), operations_.end(),
                     [](const Record& open) { return open.reduced < open.steps; }) ||
         std::any_of(children_.begin(), children_.end(),
                     [&](const Child& child) { return child.heads.arrived() > begun; });
}

// A child may have its last result before the other children have theirs: those get it first.
void AggGroup::watch() {
  for (const Child& child : children_) {
    if (isLinked(child.link.get())) continue;
    if (waitsForAll()) lose(child);
    if (operations_.empty()) part(child);
  }
  for (Child& child : children_)
    if (child.pipe->look() == coll::Pipe::State::alarmed) end(child.pipe->alarm());
  if (!options_.parent || hasEnded()) return;
  if (!options_.parent->linked()) blameParent();
  if (options_.parent->pipe->look() == coll::Pipe::State::alarmed) end(options_.parent->pipe->alarm());
}

// Words of a child change nothing now. But alarms that could not leave have to be repeated, a child waits
// until its connection is closed, and one that starts something has to hear that nothing comes of it.
void AggGroup::settle() {
  bool moved = false;
  for (Child& child : children_)
    if (state_ == State::parting && !child.gone && child.heads.progress(first_ + kHeads, &moved) &&
        waitsForAll())
      end({why_, true});
  for (Child& child : children_) {
    if (child.gone) continue;
    if (!isLinked(child.link.get()))
      dismiss(child);
    else
      (void)child.pipe->look();  // repeats ours
  }
  if (options_.parent) options_.parent->pipe->repeatAlarm();
}

GroupReport AggGroup::report() const {
  GroupReport report{options_.id, options_.ranks, isRoot(), why_, statistics_, {}};
  for (const Child& child : children_) report.members.push_back({child.name, child.weight, child.late});
  return report;
}

bool AggGroup::over() const {
  return std::all_of(children_.begin(), children_.end(), [](const Child& child) { return child.gone; });
}

}  // namespace weft::agg
