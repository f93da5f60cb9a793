// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/folds.h"

#include <algorithm>

#include "src/base/log.h"

// Blocks, and the receives of pieces.
namespace weft::coll {

bool Fault::set(int from, std::string words) {
  if (!why.empty()) return false;
  member = from;
  why = std::move(words);
  return false;
}

bool Fault::setSize(int from, size_t came, size_t expected) {
  return set(from, format("it sent %zu bytes where %zu were expected: the ranks disagree about the operation",
                          came, expected));
}

Status BlockPool::make() {
  auto block = std::make_unique<Block>();
  const auto count = static_cast<size_t>(members_.count());
  TRY(block->memory, Staging::create(blockBytes(count, options_.pieceBytes)));
  for (const Pipe* pipe : members_.pipes) {
    block->receiving.push_back(nullptr);
    block->sending.push_back(nullptr);
    if (!pipe) continue;
    TRY(block->receiving.back(), block->memory.registerOn(pipe->receiving()));
    if (!options_.sends) continue;
    TRY(block->sending.back(), block->memory.registerOn(pipe->sending()));
  }
  free_.push_back(block.get());
  blocks_.push_back(std::move(block));
  return {};
}

Status BlockPool::fill() {
  while (blocks_.size() < options_.most) TRY(make());
  return {};
}

Result<Block*> BlockPool::take(bool oldest) {
  const size_t left = free_.size() + options_.most - blocks_.size();
  if (!oldest && left <= options_.kept) return nullptr;
  if (free_.empty() && blocks_.size() < options_.most) TRY(make());
  if (free_.empty()) return nullptr;
  Block* block = free_.back();
  free_.pop_back();
  block->uses = 1;
  return block;
}

void Folds::beginFolds(uint64_t turn, Span whole) {
  turn_ = turn;
  whole_ = whole;
  opened_ = whole.begin;
}

// The senders cut their parts alike: each message fits just one receive.
bool Folds::openFolds(bool oldest) {
  const BlockPool::Options& options = blocks_.options();
  while (opened_ < whole_.end && foldings_.size() < options.atOnce) {
    auto taken = blocks_.take(oldest);
    if (!taken) return fault_.set(members_.self, "memory to reduce in: " + taken.error().message());
    refused_ = refused_ || !*taken;
    if (!*taken) return true;
    Folding& folding = foldings_.emplace_back();
    folding.block = *taken;
    folding.piece = {opened_, std::min(whole_.end, opened_ + options.pieceBytes)};
    folding.receives.resize(static_cast<size_t>(members_.count()));
    opened_ = folding.piece.end;
  }
  return true;
}

// The receives of a piece are posted before those of the next one: messages of a tag match receives in the
// order of posting.
bool Folds::postFolds() {
  for (Folding& folding : foldings_) {
    if (!post(folding)) return false;
    if (folding.unposted == members_.count()) continue;
    refused_ = true;
    break;
  }
  return true;
}

bool Folds::post(Folding& folding) {
  int first = members_.count();  // without a receive
  for (int member = folding.unposted; member < members_.count(); member++) {
    const auto m = static_cast<size_t>(member);
    const Pipe* pipe = members_.pipe(member);
    const size_t bytes = pipe ? bytesFrom(member, folding.piece) : 0;
    if (bytes == 0 || folding.receives[m]) continue;
    const core::Posted posted =
        pipe->receiving().irecvOne(blocks_.piece(*folding.block, member), bytes, contributionTag(turn_),
                                   folding.block->receiving[m], nullptr);
    if (!posted.ok) return fault_.set(member, pipe->receiving().error().message());
    folding.receives[m] = posted.request;
    if (!posted.request) first = std::min(first, member);
  }
  folding.unposted = first;
  return true;
}

// A piece can only be combined when all of it is here. So the test stops at the first receive that is not
// done: each test of such a receive polls the network.
bool Folds::test(Folding& folding) {
  for (; folding.next < members_.count(); folding.next++) {
    const int member = folding.next;
    const size_t bytes = members_.pipe(member) ? bytesFrom(member, folding.piece) : 0;
    if (bytes == 0) continue;
    core::Request* request = folding.receives[static_cast<size_t>(member)];
    if (!request) return true;
    int size = 0;
    const core::Tested tested = core::test(request, &size);
    if (!tested.ok) return fault_.set(member, members_.pipe(member)->receiving().error().message());
    if (!tested.done) late_ = member;
    if (!tested.done) return true;
    if (static_cast<size_t>(size) != bytes) return fault_.setSize(member, static_cast<size_t>(size), bytes);
    activity_++;
  }
  return true;
}

bool Folds::advanceFolds() {
  while (!foldings_.empty() && mayCombine()) {
    Folding& oldest = foldings_.front();
    if (!test(oldest)) return false;
    if (oldest.next < members_.count()) return true;
    if (!combine(oldest))
      return fault_.set(members_.self, "a piece of the vector is no number of whole elements");
    late_ = -1;
    blocks_.release(oldest.block);
    foldings_.pop_front();
  }
  return true;
}

}  // namespace weft::coll
