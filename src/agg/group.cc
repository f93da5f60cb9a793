// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/agg/group.h"

#include <algorithm>

#include "src/base/log.h"
#include "src/base/reserve.h"
#include "src/coll/kernels.h"
#include "src/coll/plan.h"

// The stages of a group: heads, operations, the end.
namespace weft::agg {

using coll::OperationHead;
using coll::Pipe;

namespace {

std::string leaving(const Child& child) {
  return child.name + " left the group or failed";
}

}  // namespace

// Both numbers come from a rank: 4096 ranks and 16 MiB at most (coll::decodeJoinRequest).
size_t AggGroup::memoryBytes(size_t ranks, size_t chunkBytes, size_t window) {
  return coll::BlockPool::blockBytes(ranks, chunkBytes) * window + ranks * kHeads * coll::kOperationHeadBytes;
}

AggGroup::AggGroup(const GroupOptions& options, std::vector<Child> children)
    : options_(options), children_(std::move(children)) {
  std::sort(children_.begin(), children_.end(),
            [](const Child& a, const Child& b) { return a.rank < b.rank; });
  members_.self = static_cast<int>(children_.size());
  for (const Child& child : children_) members_.pipes.push_back(child.pipe.get());
}

Status AggGroup::prepare() {
  coll::BlockPool::Options blocks;
  blocks.pieceBytes = options_.chunkBytes;
  blocks.most = blocks.atOnce = options_.window;
  blocks.kept = std::max<size_t>(1, options_.window / 4);
  blocks.sends = true;
  blocks_.emplace(members_, blocks);
  TRY(blocks_->fill());
  for (Child& child : children_) {
    TRY(child.heads, coll::Staging::create(kHeads * coll::kOperationHeadBytes));
    TRY(child.headMemory, child.heads.registerOn(child.pipe->receiving()));
    child.pipe->receiving().mayIdle();  // a rank that leaves is no failure of its announcements
  }
  for (size_t turn = 0; turn < kHeads; turn++)
    operations_.push_back(std::make_unique<AggOperation>(members_, *blocks_));
  return {};
}

void AggGroup::close() {
  const MustNotFail closing;
  for (const Child& child : children_) child.pipe->close();
}

// The first reason stands: later failures follow from it.
bool AggGroup::enter(State next, const std::string& why) {
  if (next <= state_) return false;
  if (state_ == State::living) {
    why_ = why;
    endedSince_ = options_.clock->now();
    WEFT_LOG(info, "group %016llx of %u ranks ended: %s", static_cast<unsigned long long>(options_.id),
             options_.ranks, why_.c_str());
  }
  state_ = next;
  return true;
}

void AggGroup::end(const std::string& why) {
  if (!enter(State::broken, why)) return;
  for (const Child& child : children_) child.pipe->fail(why_);
}

// A rank's connection failed; its own words are better than ours.
bool AggGroup::lose(const Child& child) {
  const std::string words = child.pipe->alarm();
  end(words.empty() ? leaving(child) : words);
  return false;
}

bool AggGroup::progress() {
  if (hasEnded()) return false;
  bool moved = false;
  for (Child& child : children_)
    if (!receiveHeads(child, &moved)) return moved;
  if (takeHeads(&moved)) (void)moveOperations(&moved);
  return moved;
}

// Heads may come kHeads operations ahead. No more receives are posted, so a rank cannot send more. One that
// has left announces nothing more; what that means watch() knows, and the operations that lack its part.
bool AggGroup::receiveHeads(Child& child, bool* moved) {
  const auto placeOf = [&](uint64_t turn) {
    return child.heads.data() + turn % kHeads * coll::kOperationHeadBytes;
  };
  for (; child.posted < first_ + kHeads; child.posted++) {
    const core::Posted posted = child.pipe->receiving().irecvOne(
        placeOf(child.posted), coll::kOperationHeadBytes, coll::kHeadTag, child.headMemory, nullptr);
    if (!posted.ok) return child.pipe->look() == Pipe::State::left || lose(child);
    if (!posted.request) break;
    child.receives[child.posted % kHeads] = posted.request;
  }
  for (; child.arrived < child.posted; child.arrived++) {
    int size = 0;
    const core::Tested tested = core::test(child.receives[child.arrived % kHeads], &size);
    if (!tested.ok) return child.pipe->look() == Pipe::State::left || lose(child);
    if (!tested.done) break;
    if (static_cast<size_t>(size) != coll::kOperationHeadBytes)
      return end(child.name + " sent something that is no operation"), false;
    *moved = true;
  }
  return true;
}

// An operation begins when every rank's head of it is here. The heads have to be equal.
bool AggGroup::takeHeads(bool* moved) {
  while (next_ < first_ + kHeads) {
    std::optional<OperationHead> agreed;
    for (const Child& child : children_) {
      if (child.arrived <= next_) return true;
      const std::byte* bytes = child.heads.data() + next_ % kHeads * coll::kOperationHeadBytes;
      const auto head = coll::decodeOperation({bytes, coll::kOperationHeadBytes});
      if (!head) return end(child.name + ": " + head.error().message()), false;
      if (!agreed) agreed = *head;
      if (*head != *agreed || head->sequence != next_)
        return end(format("%s started %s, and %s %s", child.name.c_str(), coll::describe(*head).c_str(),
                          children_[0].name.c_str(), coll::describe(*agreed).c_str())),
               false;
    }
    if (!open(*agreed)) return false;
    *moved = true;
  }
  return true;
}

bool AggGroup::open(const OperationHead& head) {
  const size_t element =
      coll::isReduction(head.kind) && coll::canReduce(head.type, head.op) ? coll::elementBytes(head.type) : 1;
  const bool whole =
      head.bytes % element == 0 && head.bytesPerRank % element == 0 && head.windowOffset % element == 0;
  if (!whole || (coll::isReduction(head.kind) && !coll::canReduce(head.type, head.op)))
    return end("there is no such reduction: " + coll::describe(head)), false;
  operation(next_++).begin(head);
  statistics_.operations++;
  return true;
}

// In their order, as coll::Exchanges does it, and for the same reason.
bool AggGroup::moveOperations(bool* moved) {
  bool mayPost = true, oldest = true;
  for (uint64_t turn = first_; turn < next_; turn++) {
    AggOperation& now = operation(turn);
    if (now.isOver()) continue;
    const uint64_t before = now.activity();
    const AggOperation::Step step = now.progress(oldest, mayPost);
    *moved = *moved || now.activity() != before || step != AggOperation::Step::going;
    oldest = false;
    mayPost = mayPost && !now.refused();
    if (step == AggOperation::Step::done) count(now);
    if (step != AggOperation::Step::failed) continue;
    const coll::Fault& fault = now.fault();
    const bool ours = fault.member < 0 || fault.member >= members_.count();
    if (ours) return end("the aggregation daemon: " + fault.why), false;
    const Child& child = children_[static_cast<size_t>(fault.member)];
    if (child.pipe->look() != Pipe::State::open) return lose(child);
    return end(child.name + ": " + fault.why + ", of " + coll::describe(now.head())), false;
  }
  while (first_ < next_ && operation(first_).isOver()) first_++;
  return true;
}

void AggGroup::count(const AggOperation& operation) {
  statistics_.chunks += operation.chunks();
  statistics_.bytesIn += operation.bytesIn();
  statistics_.bytesOut += operation.bytesOut();
  for (Child& child : children_) child.late += operation.lateOf(static_cast<int>(&child - children_.data()));
}

// Something was started that no rank may be absent from.
bool AggGroup::waitsForAll() {
  for (uint64_t turn = first_; turn < next_; turn++)
    if (!operation(turn).isReduced()) return true;
  return std::any_of(children_.begin(), children_.end(),
                     [&](const Child& child) { return child.arrived > next_; });
}

// A rank may have its last result, and leave, before the others have theirs: those get it first. One whose
// connection failed had no such right.
void AggGroup::watch() {
  for (const Child& child : children_) {
    const Pipe::State state = child.pipe->look();
    if (state == Pipe::State::open) continue;
    if (state != Pipe::State::left || waitsForAll()) lose(child);
    if (first_ == next_) enter(State::parting, leaving(child));
  }
}

void AggGroup::settle() {
  bool moved = false;
  for (Child& child : children_)
    if (state_ == State::parting && child.pipe->look() == Pipe::State::open)
      (void)receiveHeads(child, &moved);
  const bool late = options_.clock->now() - endedSince_ >= options_.parting;
  if (state_ == State::parting && (late || waitsForAll())) end(why_);
}

bool AggGroup::over() const {
  return state_ == State::broken || std::all_of(children_.begin(), children_.end(), [](const Child& child) {
           return child.pipe->look() != Pipe::State::open;
         });
}

GroupReport AggGroup::report() const {
  GroupReport report{options_.id, options_.ranks, why_, statistics_, {}};
  for (const Child& child : children_) report.members.push_back({child.name, child.late});
  return report;
}

}  // namespace weft::agg
