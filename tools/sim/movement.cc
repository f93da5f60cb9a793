// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/sim/movement.h"

#include <algorithm>
#include <utility>

#include "src/base/log.h"
#include "tools/perf/ring_schedule.h"
#include "tools/perf/slots.h"
#include "tools/perf/tree.h"

namespace weft::sim {

namespace {

Status checkSize(const Inlet& inlet, size_t bytes) {
  if (inlet.size() == bytes) return {};
  return Error(Code::internal, "simulating",
               format("a message of %zu bytes came in place of one of %zu", inlet.size(), bytes));
}

class Ring final : public Movement {
 public:
  Ring(perf::RingKind kind, int rank, int size, std::unique_ptr<Outlet> next, std::unique_ptr<Inlet> previous)
      : next_(std::move(next)), previous_(std::move(previous)) {
    shape_.kind = kind;
    shape_.rank = rank;
    shape_.size = size;
    shape_.slice = slotBytes(kind) / perf::kAlignBytes * perf::kAlignBytes / kElementBytes;
    shape_.align = perf::kAlignBytes / kElementBytes;
  }

  static size_t slotBytes(perf::RingKind kind) { return kBufferBytes / perf::kSteps * stepsPerSlot(kind); }
  static size_t stepsPerSlot(perf::RingKind kind) { return kind == perf::RingKind::broadcast ? 1 : 2; }

  void start(uint64_t bytes) override {
    const bool parts =
        shape_.kind == perf::RingKind::allGather || shape_.kind == perf::RingKind::reduceScatter;
    shape_.count = bytes / kElementBytes / (parts ? static_cast<size_t>(shape_.size) : 1);
    shape_.stride = shape_.count;
    schedule_ = perf::RingSchedule(shape_);
    previous_->expect(schedule_.receives());
  }

  Status progress(Effort* effort) override {
    for (bool ran = true; ran && !schedule_.finished();) TRY(runSlice(effort, &ran));
    TRY(next_->progress(effort));
    return previous_->progress(effort);
  }

  bool done() const override { return schedule_.finished() && next_->idle() && previous_->idle(); }

 private:
  Status runSlice(Effort* effort, bool* ran) {
    const perf::RingStep step = schedule_.step();
    *ran = (!step.sends || next_->hasSlot()) && (!step.receives || previous_->ready());
    if (!*ran) return {};
    const size_t bytes = schedule_.length() * kElementBytes;
    if (step.receives) TRY(checkSize(*previous_, bytes));
    (step.reduces ? effort->reduced : effort->copied) += bytes;
    if (step.stores && step.sends) effort->copied += bytes;
    effort->moved = true;
    if (step.sends) next_->commit(bytes);
    if (step.receives) previous_->release();
    schedule_.advance();
    return {};
  }

  perf::RingShape shape_;
  perf::RingSchedule schedule_;
  std::unique_ptr<Outlet> next_;
  std::unique_ptr<Inlet> previous_;
};

struct Child {
  std::unique_ptr<Outlet> to;
  std::unique_ptr<Inlet> from;
};

// Two streams of slices that meet at the root, as in tools/perf/tree_all_reduce.cc; half of the bytes, as the
// other tree has the other half.
class Tree final : public Movement {
 public:
  static constexpr size_t kSlot = kBufferBytes / perf::kSteps;

  Child parent;
  bool isRoot = false;
  int instance = 0;
  std::vector<Child> children;

  void start(uint64_t bytes) override {
    const uint64_t whole = bytes / kElementBytes * kElementBytes;
    const uint64_t share =
        std::min(whole, (whole / 2 + perf::kAlignBytes - 1) / perf::kAlignBytes * perf::kAlignBytes);
    bytes_ = instance == 0 ? share : whole - share;
    slices_ = std::max<uint64_t>(1, (bytes_ + kSlot - 1) / kSlot);
    up_ = 0;
    down_ = isRoot ? slices_ : 0;
    if (!isRoot) parent.from->expect(slices_);
    for (Child& child : children) child.from->expect(slices_);
  }

  Status progress(Effort* effort) override {
    for (bool moved = true; moved;) TRY(stepUp(effort, &moved));
    for (bool moved = true; moved;) TRY(stepDown(effort, &moved));
    if (!isRoot) TRY(both(parent, effort));
    for (Child& child : children) TRY(both(child, effort));
    return {};
  }

  bool done() const override {
    const auto idle = [](const Child& child) { return child.to->idle() && child.from->idle(); };
    return up_ == slices_ && down_ == slices_ && (isRoot || idle(parent)) &&
           std::all_of(children.begin(), children.end(), idle);
  }

 private:
  static Status both(Child& link, Effort* effort) {
    TRY(link.to->progress(effort));
    return link.from->progress(effort);
  }
  size_t lengthOf(uint64_t slice) const {
    return static_cast<size_t>(std::min<uint64_t>(kSlot, bytes_ - std::min(bytes_, slice * kSlot)));
  }
  bool childrenSent() const {
    return std::all_of(children.begin(), children.end(), [](const Child& c) { return c.from->ready(); });
  }
  bool childrenTake() const {
    return std::all_of(children.begin(), children.end(), [](const Child& c) { return c.to->hasSlot(); });
  }

  // At the root the slice turns round and is on its way down.
  Status stepUp(Effort* effort, bool* moved) {
    *moved = up_ < slices_ && childrenSent() && (isRoot ? childrenTake() : parent.to->hasSlot());
    if (!*moved) return {};
    const size_t bytes = lengthOf(up_++);
    for (Child& child : children) {
      TRY(checkSize(*child.from, bytes));
      child.from->release();
      effort->reduced += bytes;
      if (isRoot) child.to->commit(bytes);
    }
    if (children.empty()) effort->copied += bytes;
    if (isRoot) effort->copied += children.size() * bytes;
    if (!isRoot) parent.to->commit(bytes);
    effort->moved = true;
    return {};
  }

  Status stepDown(Effort* effort, bool* moved) {
    *moved = down_ < slices_ && !isRoot && parent.from->ready() && childrenTake();
    if (!*moved) return {};
    const size_t bytes = lengthOf(down_++);
    TRY(checkSize(*parent.from, bytes));
    parent.from->release();
    for (Child& child : children) child.to->commit(bytes);
    effort->copied += (1 + children.size()) * bytes;
    effort->moved = true;
    return {};
  }

  uint64_t bytes_ = 0;
  uint64_t slices_ = 0;
  uint64_t up_ = 0;
  uint64_t down_ = 0;
};

// Everybody has a part for everybody it is connected to. Ends that have all are not looked at any more.
class Exchange final : public Movement {
 public:
  explicit Exchange(int size) : size_(static_cast<uint64_t>(size)) {}
  struct Out {
    std::unique_ptr<Outlet> outlet;
    uint64_t left = 0;
    uint64_t messages = 0;
    bool idle() const { return messages == 0 && outlet->idle(); }
  };
  std::vector<Out> outs;
  std::vector<std::unique_ptr<Inlet>> ins;

  void start(uint64_t bytes) override {
    const uint64_t part = bytes / kElementBytes / size_ * kElementBytes;
    own_ = part;
    chunk_ = perf::chunkOf(part, kP2pBytes);
    const uint64_t messages = std::max<uint64_t>(1, (part + chunk_ - 1) / chunk_);
    for (Out& out : outs) {
      out.left = part;
      out.messages = messages;
      sending_.push_back(&out);
    }
    for (const auto& in : ins) {
      in->expect(messages);
      receiving_.push_back(in.get());
    }
  }

  Status progress(Effort* effort) override {
    effort->copied += std::exchange(own_, 0);
    for (Out* out : sending_) {
      while (out->messages > 0 && out->outlet->hasSlot()) feed(out, effort);
      TRY(out->outlet->progress(effort));
    }
    for (Inlet* in : receiving_) {
      for (; in->ready(); in->release()) effort->copied += in->size();
      TRY(in->progress(effort));
      for (; in->ready(); in->release()) effort->copied += in->size();
    }
    std::erase_if(sending_, [](const Out* out) { return out->idle(); });
    std::erase_if(receiving_, [](const Inlet* in) { return in->idle(); });
    return {};
  }

  bool done() const override { return sending_.empty() && receiving_.empty(); }

 private:
  void feed(Out* out, Effort* effort) const {
    const auto bytes = static_cast<size_t>(std::min<uint64_t>(chunk_, out->left));
    out->outlet->commit(bytes);
    out->left -= bytes;
    out->messages--;
    effort->copied += bytes;
    effort->moved = true;
  }

  const uint64_t size_;
  size_t chunk_ = 0;
  uint64_t own_ = 0;  // bytes for itself, which are still to be copied
  std::vector<Out*> sending_;
  std::vector<Inlet*> receiving_;
};

ChannelShape shapeOf(const Wires& wires, size_t slotBytes, size_t slots) {
  return {slotBytes, slots, wires.memory};
}

Result<std::unique_ptr<Movement>> makeRing(perf::RingKind kind, Wires wires) {
  const ChannelShape shape = shapeOf(wires, Ring::slotBytes(kind), perf::kSteps / Ring::stepsPerSlot(kind));
  TRY(auto next, Outlet::create(std::move(wires.to.front().comm), shape));
  TRY(auto previous, Inlet::create(std::move(wires.from.front().comm), shape));
  return std::unique_ptr<Movement>(
      std::make_unique<Ring>(kind, wires.rank, wires.size, std::move(next), std::move(previous)));
}

Result<Child> childOf(Wires* wires, int peer, const ChannelShape& shape) {
  Child child;
  for (Wires::To& to : wires->to) {
    if (to.peer != peer) continue;
    TRY(child.to, Outlet::create(std::move(to.comm), shape));
  }
  for (Wires::From& from : wires->from) {
    if (from.peer != peer) continue;
    TRY(child.from, Inlet::create(std::move(from.comm), shape));
  }
  return child;
}

Result<std::unique_ptr<Movement>> makeTree(int instance, Wires wires) {
  const perf::TreePlace place = perf::treePlace(wires.rank, wires.size, instance);
  const ChannelShape shape = shapeOf(wires, Tree::kSlot, perf::kSteps);
  auto tree = std::make_unique<Tree>();
  tree->instance = instance;
  tree->isRoot = place.parent < 0;
  if (!tree->isRoot) {
    TRY(tree->parent, childOf(&wires, place.parent, shape));
  }
  for (const int child : place.children) {
    TRY(auto link, childOf(&wires, child, shape));
    tree->children.push_back(std::move(link));
  }
  return std::unique_ptr<Movement>(std::move(tree));
}

Result<std::unique_ptr<Movement>> makeExchange(Wires wires) {
  const ChannelShape shape = shapeOf(wires, kP2pBytes, perf::kSteps);
  auto exchange = std::make_unique<Exchange>(wires.size);
  for (Wires::To& to : wires.to) {
    TRY(auto outlet, Outlet::create(std::move(to.comm), shape));
    exchange->outs.push_back({std::move(outlet), 0, 0});
  }
  for (Wires::From& from : wires.from) {
    TRY(auto inlet, Inlet::create(std::move(from.comm), shape));
    exchange->ins.push_back(std::move(inlet));
  }
  return std::unique_ptr<Movement>(std::move(exchange));
}

}  // namespace

Result<std::unique_ptr<Movement>> makeMovement(const perf::Operation* operation, int instance, Wires wires) {
  if (!operation || operation->movement == perf::Movement::allToAll) return makeExchange(std::move(wires));
  switch (operation->movement) {
    case perf::Movement::allGather:
      return makeRing(perf::RingKind::allGather, std::move(wires));
    case perf::Movement::reduceScatter:
      return makeRing(perf::RingKind::reduceScatter, std::move(wires));
    case perf::Movement::broadcast:
      return makeRing(perf::RingKind::broadcast, std::move(wires));
    default:
      break;
  }
  if (operation->ways > 1) return makeTree(instance, std::move(wires));
  return makeRing(perf::RingKind::allReduce, std::move(wires));
}

}  // namespace weft::sim
