// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <cstring>

#include "tools/perf/channels.h"
#include "tools/perf/tree.h"

namespace weft::perf {

namespace {

struct Child {
  std::unique_ptr<netdriver::SendChannel> to;
  std::unique_ptr<netdriver::RecvChannel> from;
};

// Two streams of slices that only meet at the root: up_ counts those reduced and passed to the parent, down_
// those that came back.
class TreeAllReduce final : public Collective {
 public:
  Status connect(Wiring& wiring) {
    const TreePlace place = treePlace(wiring.rank, wiring.size, wiring.channel % 2);
    const auto shape = bufferShape(wiring, 1);
    slotBytes_ = shape.slotBytes;
    if (place.parent >= 0) {
      TRY(toParent_, sendTo(wiring, place.parent, shape));
      TRY(fromParent_, receiveFrom(wiring, place.parent, shape));
    }
    for (const int child : place.children) {
      Child& at = children_.emplace_back();
      TRY(at.to, sendTo(wiring, child, shape));
      TRY(at.from, receiveFrom(wiring, child, shape));
    }
    return {};
  }

  void start(const Work& work) override {
    work_ = work;
    slice_ = slotBytes_ / kAlignBytes * kAlignBytes / work.type->bytes;
    slices_ = std::max<size_t>(1, (work.count + slice_ - 1) / slice_);  // nothing is still one message
    up_ = 0;
    down_ = isRoot() ? slices_ : 0;
    if (!isRoot()) fromParent_->expect(slices_);
    for (Child& child : children_) child.from->expect(slices_);
  }

  Status progress(bool* moved) override {
    while (stepUp()) *moved = true;
    while (stepDown()) *moved = true;
    if (!isRoot()) {
      TRY(toParent_->progress(moved));
      TRY(fromParent_->progress(moved));
    }
    for (Child& child : children_) {
      TRY(child.to->progress(moved));
      TRY(child.from->progress(moved));
    }
    return {};
  }

  bool done() const override {
    const auto idle = [](const Child& child) { return child.to->idle() && child.from->idle(); };
    return up_ == slices_ && down_ == slices_ && (isRoot() || (toParent_->idle() && fromParent_->idle())) &&
           std::all_of(children_.begin(), children_.end(), idle);
  }

  uint64_t messages() const override {
    uint64_t sum = isRoot() ? 0 : toParent_->messages() + fromParent_->messages();
    for (const Child& child : children_) sum += child.to->messages() + child.from->messages();
    return sum;
  }

 private:
  bool isRoot() const { return toParent_ == nullptr; }
  size_t lengthOf(size_t slice) const {
    return std::min(slice_, work_.count - std::min(work_.count, slice * slice_));
  }
  size_t offsetOf(size_t slice) const { return slice * slice_ * work_.type->bytes; }

  bool childrenSent() const {
    return std::all_of(children_.begin(), children_.end(), [](const Child& c) { return c.from->ready(); });
  }
  bool childrenTake() const {
    return std::all_of(children_.begin(), children_.end(),
                       [](const Child& c) { return c.to->freeSlot() != nullptr; });
  }

  // At the root the slice turns round and is on its way down.
  bool stepUp() {
    if (up_ == slices_ || !childrenSent()) return false;
    if (isRoot() ? !childrenTake() : toParent_->freeSlot() == nullptr) return false;
    const size_t bytes = lengthOf(up_) * work_.type->bytes;
    std::byte* result = isRoot() ? work_.output + offsetOf(up_) : toParent_->freeSlot();
    combine(work_.input + offsetOf(up_), bytes, result);
    if (isRoot()) passDown(result, bytes);
    if (!isRoot()) toParent_->commit(bytes);
    ++up_;
    return true;
  }

  void combine(const std::byte* input, size_t bytes, std::byte* result) {
    if (children_.empty() && bytes > 0) std::memcpy(result, input, bytes);
    const std::byte* other = input;
    for (Child& child : children_) {
      if (bytes > 0)
        work_.type->reduce(work_.op, result, child.from->message().data(), other, bytes / work_.type->bytes);
      other = result;
      child.from->release();
    }
  }

  bool stepDown() {
    if (down_ == slices_ || !fromParent_->ready() || !childrenTake()) return false;
    const size_t bytes = lengthOf(down_) * work_.type->bytes;
    std::byte* output = work_.output + offsetOf(down_);
    if (bytes > 0) std::memcpy(output, fromParent_->message().data(), bytes);
    fromParent_->release();
    passDown(output, bytes);
    ++down_;
    return true;
  }

  void passDown(const std::byte* data, size_t bytes) {
    for (Child& child : children_) {
      if (bytes > 0) std::memcpy(child.to->freeSlot(), data, bytes);
      child.to->commit(bytes);
    }
  }

  size_t slotBytes_ = 0;
  std::unique_ptr<netdriver::SendChannel> toParent_;
  std::unique_ptr<netdriver::RecvChannel> fromParent_;
  std::vector<Child> children_;
  Work work_;
  size_t slice_ = 1;  // elements
  size_t slices_ = 0;
  size_t up_ = 0;
  size_t down_ = 0;
};

}  // namespace

Result<std::unique_ptr<Collective>> makeTreeAllReduce(Wiring wiring) {
  if (wiring.size == 1) return std::make_unique<CopyAlone>();
  auto tree = std::make_unique<TreeAllReduce>();
  TRY(tree->connect(wiring));
  return tree;
}

}  // namespace weft::perf
