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
  for (Slot& slot : slots_) slot.group = this;
}

// Memory:

namespace {

// Registering failed because the daemon is gone, which the next operation will find: the ranks go on among
// themselves then, as they do when an operation finds it first.
bool isLoss(const Error& error, const TreeGroup& tree) {
  return error.code() == Code::remote || error.code() == Code::timeout || !tree.isReachable();
}

}  // namespace

Result<GroupMemory*> SparedTree::registerMemory(const MemoryDesc& desc) {
  const bool host = desc.kind == MemoryKind::host;
  auto memory = std::make_unique<BothMemory>();
  std::lock_guard lock(mutex_);
  if (tree_) {
    auto registered = tree_->registerMemory(desc);
    if (!registered && (!host || !isLoss(registered.error(), *tree_))) return registered.takeError();
    memory->tree = registered ? *registered : nullptr;
  }
  if (host) {
    auto spare = spare_->registerMemory(desc);
    if (!spare && memory->tree) (void)tree_->deregisterMemory(memory->tree);
    if (!spare) return spare.takeError();
    memory->spare = *spare;
  }
  return memories_.keep(std::move(memory));
}

// While the lost tree closes, what it still has under way may land in the memory. Closing gives it back.
Status SparedTree::deregisterMemory(GroupMemory* memory) {
  TRY(const auto gone, memories_.take(memory));
  if (gone->spare) TRY(spare_->deregisterMemory(gone->spare));
  if (!gone->tree) return {};
  {
    std::lock_guard lock(mutex_);
    if (tree_) return tree_->deregisterMemory(gone->tree);
  }
  closing_.wait(clock());
  return {};
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

// False: the daemon was gone already when the memory was registered.
bool SparedTree::treeKnows(const Operation& operation) const {
  for (const GroupMemory* memory : {operation.sendMemory, operation.receiveMemory})
    if (memory && !static_cast<const BothMemory*>(memory)->tree) return false;
  return true;
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
    if (!treeKnows(operation))
      tree_->giveUp(format("the aggregation daemon %s is gone", tree_->daemon().c_str()));
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
  const auto place = static_cast<uint64_t>(&slot - slots_.data());
  const uint64_t sequence = oldest_ + (place + kSlots - oldest_ % kSlots) % kSlots;
  after_ = std::max(after_, sequence + 1);
  while (oldest_ < next_ && !slotOf(oldest_).used) oldest_++;
  return {true, true, bytes};
}

Finished SparedTree::test(GroupRequest* request) {
  if (Flush* flush = flushes_.find(request)) return testFlush(*flush);
  auto& slot = static_cast<Slot&>(*request);
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

// Data in host memory is visible as soon as it is received, whatever became of the tree. A GPU may see older
// bytes until the connection that brought the data has flushed it, and that connection ends with the tree:
// from then on nothing can flush, and the group is broken rather than wrong.
Started SparedTree::flush(const void* data, size_t bytes, GroupMemory* memory) {
  if (state_ == State::broken) return {false, nullptr};
  Flush* flush = flushes_.take(memory, bytes);
  if (!flush) {
    breakDown(format("rank %d: %s", spare_->mesh().rank(), FlushTable::kFull));
    return {false, nullptr};
  }
  const auto& known = static_cast<const BothMemory&>(*memory);
  if (state_ == State::tree && known.tree) {
    const Started started = tree_->flush(data, bytes, known.tree);
    flush->inner = started.request;
    if (!started.ok) loseTree();
  }
  if (!flush->inner && !known.spare && state_ != State::broken)
    breakDown(why_ + "; what it brought into a GPU's memory can no longer be flushed");
  if (!flush->inner) flush->state = Flush::State::visible;
  return {state_ != State::broken, state_ != State::broken ? flush : nullptr};
}

// A flush that the tree took along when it was lost stays waiting: this rank has voted against going on
// (loseTree), so the group is about to break.
Finished SparedTree::testFlush(Flush& flush) {
  if (state_ == State::agreeing) agree();
  if (state_ == State::broken) return {false, false, 0};
  if (flush.state == Flush::State::visible) return FlushTable::finish(flush);
  if (!flush.inner) return {};
  const Finished finished = tree_->test(flush.inner);
  if (finished.ok) return finished.done ? FlushTable::finish(flush) : finished;
  loseTree();
  return {state_ != State::broken, false, 0};
}

// From the tree to the ranks:

// From here on the tree has nothing to say. It closes on a thread of its own while the ranks agree, and
// nothing begins again before that is over: what the tree still has under way must not land in a result.
void SparedTree::loseTree() {
  if (state_ != State::tree) return;
  why_ = tree_->error().detail();
  ofTree_ = tree_->counters();
  if (!tree_->isTreeLost()) return breakDown(why_);
  mine_ = {after_, ~oldest_};
  for (uint64_t at = oldest_; at < next_; at++)
    if (slotOf(at).used && !holdsSource(slotOf(at).operation)) mine_[0] = kCannot;
  for (Flush& flush : flushes_) {
    if (flush.state != Flush::State::waiting) continue;
    flush.inner = nullptr;
    if (static_cast<const BothMemory*>(flush.memory)->spare)
      flush.state = Flush::State::visible;
    else
      mine_[0] = kCannot;
  }
  for (Slot& slot : slots_) slot.inner = nullptr;
  WEFT_LOG(warn, "%s: the ranks of the group ask each other whether they can go on without the tree",
           why_.c_str());
  state_ = State::agreeing;
  until_ = clock().now() + patience_;
  agree();
}

// Where another thread registers memory just now, the next call tries again.
void SparedTree::handOver() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock && tree_) closing_.take(std::move(tree_));
}

void SparedTree::agree() {
  handOver();
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
  if (clock().now() > until_)
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

// In the order of the operations, as far as the spare takes them now, and once the tree has closed.
void SparedTree::beginAgain() {
  handOver();
  if (tree_ || !closing_.over()) return;
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
  GroupCounters sum = state_ == State::tree ? tree_->counters() : ofTree_;
  const GroupCounters spare = spare_->counters();
  sum.operations = next_;
  sum.bytesSent += spare.bytesSent;
  return sum;
}

}  // namespace weft::coll
