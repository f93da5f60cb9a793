// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/spared_tree.h"

#include <algorithm>

#include "src/base/log.h"
#include "src/base/reserve.h"

namespace weft::coll {

namespace {

constexpr uint64_t kCannot = UINT64_MAX;  // as `after_`: this rank cannot begin again

bool reduces(const Operation& operation) {
  return operation.kind == OperationKind::allReduce || operation.kind == OperationKind::reduceScatter;
}

}  // namespace

SparedTree::SparedTree(std::unique_ptr<TreeGroup> tree, std::unique_ptr<PeersGroup> spare,
                       Milliseconds patience)
    : spare_(std::move(spare)), tree_(std::move(tree)), patience_(patience) {
  for (auto* slots : {&slots_, &flushes_})
    for (Slot& slot : *slots) slot.group = this;
}

// Memory:

Result<GroupMemory*> SparedTree::registerMemory(const MemoryDesc& desc) {
  std::lock_guard lock(mutex_);
  auto memory = std::make_unique<BothMemory>();
  if (tree_) {
    TRY(memory->tree, tree_->registerMemory(desc));
  }
  if (desc.kind == MemoryKind::host) {
    auto spare = spare_->registerMemory(desc);
    if (!spare && memory->tree) (void)tree_->deregisterMemory(memory->tree);
    if (!spare) return spare.takeError();
    memory->spare = *spare;
  }
  return memories_.keep(std::move(memory));
}

Status SparedTree::deregisterMemory(GroupMemory* memory) {
  std::lock_guard lock(mutex_);
  TRY(const auto gone, memories_.take(memory));
  if (gone->spare) TRY(spare_->deregisterMemory(gone->spare));
  return tree_ && gone->tree ? tree_->deregisterMemory(gone->tree) : Status();
}

// Operations:

Operation SparedTree::forTree(Operation operation) const {
  for (GroupMemory** memory : {&operation.sendMemory, &operation.receiveMemory})
    if (*memory) *memory = static_cast<BothMemory*>(*memory)->tree;
  return operation;
}

Operation SparedTree::forSpare(Operation operation) const {
  for (GroupMemory** memory : {&operation.sendMemory, &operation.receiveMemory})
    if (*memory) *memory = static_cast<BothMemory*>(*memory)->spare;
  return operation;
}

// Whether the operation can begin again: its vector is in memory that the spare reaches, and no part of the
// result can have been written over it.
bool SparedTree::holdsSource(const Operation& operation) const {
  for (const GroupMemory* memory : {operation.sendMemory, operation.receiveMemory})
    if (memory && !static_cast<const BothMemory*>(memory)->spare) return false;
  return !reduces(operation) || operation.send != operation.receive;
}

Started SparedTree::startWith(Group& group, const Operation& translated, const Operation& operation) {
  const Started started = group.start(translated);
  if (!started.ok || !started.request) return started;
  Slot& slot = slotOf(next_++);
  slot.used = true;
  slot.operation = operation;
  slot.inner = started.request;
  return {true, &slot};
}

Started SparedTree::start(const Operation& operation) {
  if (state_ == State::agreeing) agree();
  if (state_ == State::spare) beginAgain();
  const bool later = state_ == State::agreeing || (state_ == State::spare && posted_ < next_);
  if (state_ == State::broken || later || slotOf(next_).used) return {state_ != State::broken, nullptr};
  if (state_ == State::tree) {
    const Started started = startWith(*tree_, forTree(operation), operation);
    if (!started.ok) loseTree();
    return {state_ != State::broken, started.request};
  }
  const Started started = startWith(*spare_, forSpare(operation), operation);
  if (!started.ok) breakDown(spare_->error().detail());
  posted_ = next_;
  return started;
}

Finished SparedTree::finish(Slot& slot, size_t bytes) {
  slot.used = false;
  if (slot.flushing) return {true, true, bytes};
  const auto place = static_cast<uint64_t>(&slot - slots_.data());
  const uint64_t sequence = oldest_ + (place + kSlots - oldest_ % kSlots) % kSlots;
  after_ = std::max(after_, sequence + 1);
  while (oldest_ < next_ && !slotOf(oldest_).used) oldest_++;
  return {true, true, bytes};
}

Finished SparedTree::test(GroupRequest* request) {
  auto& slot = static_cast<Slot&>(*request);
  if (slot.flushing) return testFlush(slot);
  if (state_ == State::agreeing) agree();
  if (state_ == State::spare) beginAgain();
  if (state_ == State::broken) spare_->mesh().repeatAlarm();
  if (state_ == State::broken || state_ == State::agreeing || !slot.inner)
    return {state_ != State::broken, false, 0};
  const bool onTree = state_ == State::tree;
  const Finished finished = onTree ? tree_->test(slot.inner) : spare_->test(slot.inner);
  if (finished.ok) return finished.done ? finish(slot, finished.bytes) : finished;
  if (onTree) {
    loseTree();
  } else {
    breakDown(spare_->error().detail());
  }
  return {state_ != State::broken, false, 0};
}

// What the ranks reduce among themselves is in host memory, and visible at once.
Started SparedTree::flush(const void* data, size_t bytes, GroupMemory* memory) {
  if (state_ == State::broken) return {false, nullptr};
  const auto slot = std::find_if(flushes_.begin(), flushes_.end(), [](const Slot& one) { return !one.used; });
  if (slot == flushes_.end()) return {true, nullptr};
  slot->inner = nullptr;
  if (state_ == State::tree && static_cast<BothMemory*>(memory)->tree) {
    const Started started = tree_->flush(data, bytes, static_cast<BothMemory*>(memory)->tree);
    if (!started.ok) loseTree();
    if (!started.request) return {state_ != State::broken, nullptr};
    slot->inner = started.request;
  }
  slot->used = true;
  slot->flushing = true;
  slot->operation.bytes = bytes;
  slot->operation.receiveMemory = memory;
  return {true, &*slot};
}

Finished SparedTree::testFlush(Slot& slot) {
  if (state_ == State::broken) return {false, false, 0};
  if (!slot.inner) return finish(slot, slot.operation.bytes);
  const Finished finished = tree_->test(slot.inner);
  if (finished.ok) return finished.done ? finish(slot, finished.bytes) : finished;
  loseTree();
  return {state_ != State::broken, false, 0};
}

// From the tree to the ranks:

// The tree is closed before anything begins again: what it still has must not land in a result.
void SparedTree::loseTree() {
  if (state_ != State::tree) return;
  why_ = tree_->error().detail();
  ofTree_ = tree_->counters();
  if (!tree_->isTreeLost()) return breakDown(why_);
  mine_ = {after_, ~oldest_};
  for (uint64_t at = oldest_; at < next_; at++)
    if (slotOf(at).used && !holdsSource(slotOf(at).operation)) mine_[0] = kCannot;
  for (Slot& slot : flushes_) {
    if (slot.used && slot.inner && !static_cast<BothMemory*>(slot.operation.receiveMemory)->spare)
      mine_[0] = kCannot;
    slot.inner = nullptr;
  }
  for (Slot& slot : slots_) slot.inner = nullptr;
  {
    std::lock_guard lock(mutex_);
    tree_.reset();
  }
  WEFT_LOG(warn, "%s: the ranks of the group ask each other whether they can go on without the tree",
           why_.c_str());
  state_ = State::agreeing;
  until_ = Clock::system().now() + patience_;
  agree();
}

void SparedTree::agree() {
  if (!agreement_) {
    const auto memoryOf = [&](std::array<uint64_t, 2>& words) {
      return spare_->registerMemory({.address = words.data(), .length = sizeof words});
    };
    if (!mineMemory_) {
      auto mine = memoryOf(mine_), all = memoryOf(all_);
      if (!mine || !all) return breakDown(why_ + "; " + (mine ? all : mine).error().message());
      mineMemory_ = *mine;
      allMemory_ = *all;
    }
    Operation greatest;
    greatest.type = ElementType::u64;
    greatest.op = ReduceOp::max;
    greatest.send = mine_.data();
    greatest.receive = all_.data();
    greatest.sendMemory = mineMemory_;
    greatest.receiveMemory = allMemory_;
    greatest.bytes = sizeof mine_;
    const Started started = spare_->start(greatest);
    if (!started.ok) return breakDown(why_ + "; " + spare_->error().detail());
    agreement_ = started.request;
    if (!agreement_) return;
  }
  const Finished finished = spare_->test(agreement_);
  if (!finished.ok) return breakDown(why_ + "; " + spare_->error().detail());
  if (finished.done) return decide();
  if (Clock::system().now() > until_)
    breakDown(
        format("%s; some rank, which may have nothing left to do, has not come to an agreement within "
               "%lld ms (WEFT_COLLNET_TIMEOUT)",
               why_.c_str(), static_cast<long long>(patience_.count())));
}

void SparedTree::decide() {
  const uint64_t youngest = all_[0], oldest = ~all_[1];
  if (youngest == kCannot)
    return breakDown(why_ + "; a rank no longer holds what it sent, or has it in a GPU's memory");
  if (youngest != oldest) return breakDown(why_ + "; some ranks have results that others lack");
  WEFT_LOG(warn, "the ranks go on without the tree, from operation %llu on",
           static_cast<unsigned long long>(oldest));
  state_ = State::spare;
  posted_ = oldest_;
  beginAgain();
}

// In the order of the operations, as far as the spare takes them now.
void SparedTree::beginAgain() {
  while (posted_ < next_) {
    Slot& slot = slotOf(posted_);
    const Started started = spare_->start(forSpare(slot.operation));
    if (!started.ok) return breakDown(spare_->error().detail());
    if (!started.request) return;
    slot.inner = started.request;
    posted_++;
  }
}

// The others hear of it at once, whatever they do.
void SparedTree::breakDown(std::string why) {
  if (state_ == State::broken) return;
  state_ = State::broken;
  why_ = std::move(why);
  WEFT_LOG(error, "collective group: %s", why_.c_str());
  spare_->mesh().raiseAlarm(why_);
}

Error SparedTree::error() const {
  return Error(Code::remote, "collective group", why_.empty() ? "nothing is wrong" : why_);
}

GroupCounters SparedTree::counters() const {
  GroupCounters sum = tree_ ? tree_->counters() : ofTree_;
  const GroupCounters spare = spare_->counters();
  sum.operations = next_;
  sum.bytesSent += spare.bytesSent;
  return sum;
}

}  // namespace weft::coll
