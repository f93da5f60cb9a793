// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/tree.h"

#include <cstring>

#include "src/base/log.h"

// Announcements, flushes, and the daemon's name.
namespace weft::coll {

TreeBackend::TreeBackend(Membership membership, int rank, size_t chunkBytes)
    : Exchanges({.pieceBytes = chunkBytes}, chunkBytes),
      membership_(std::move(membership)),
      rank_(rank),
      chunkBytes_(chunkBytes) {
  members_ = {{membership_.pipe.get()}, -1};
}

Result<std::unique_ptr<TreeBackend>> TreeBackend::create(Membership membership, int rank, size_t chunkBytes) {
  auto tree = std::make_unique<TreeBackend>(std::move(membership), rank, chunkBytes);
  TRY(tree->heads_, Staging::create(kOperations * kOperationHeadBytes));
  TRY(tree->headMemory_, tree->heads_.registerOn(tree->membership_.pipe->sending()));
  return tree;
}

// The place of an announcement may be written again when it has left.
Backend::Begun TreeBackend::begin(uint64_t turn, const Operation& operation) {
  if (!passOwn()) return Begun::failed;
  if (turn >= announced_ - sending_.size() + kOperations) return Begun::notNow;
  OperationHead head;
  head.sequence = turn;
  head.kind = operation.kind;
  head.type = operation.type;
  head.op = operation.op;
  head.bytes = vectorBytes(operation);
  if (isWindowed(operation.kind)) {
    head.bytesPerRank = operation.bytesPerRank;
    head.windowOffset = operation.windowOffset;
  }
  const Bytes bytes = head.encode();
  std::memcpy(heads_.data() + turn % kOperations * kOperationHeadBytes, bytes.data(), bytes.size());
  begun_ = turn + 1;
  return Exchanges::begin(turn, operation);
}

// A daemon takes so many announcements ahead of its results. More of them would take the requests of the comm
// from the data that it waits for.
bool TreeBackend::passOwn() {
  constexpr size_t kAtOnce = core::kMaxRequests / 2;
  core::SendComm& comm = membership_.pipe->sending();
  while (announced_ < begun_ && sending_.size() < kAtOnce) {
    const std::byte* head = heads_.data() + announced_ % kOperations * kOperationHeadBytes;
    const core::Posted posted = comm.isend(head, kOperationHeadBytes, kHeadTag, headMemory_, nullptr);
    if (!posted.ok) return fault_.set(0, comm.error().message());
    if (!posted.request) break;
    sending_.push_back(posted.request);
    announced_++;
  }
  while (!sending_.empty()) {
    const core::Tested tested = core::test(sending_.front(), nullptr);
    if (!tested.ok) return fault_.set(0, comm.error().message());
    if (!tested.done) break;
    sending_.pop_front();
  }
  return true;
}

std::string TreeBackend::nameOf(int) const {
  return "the aggregation daemon " + membership_.daemon;
}

std::string TreeBackend::gone() const {
  return nameOf(0) + " is gone";
}

std::string TreeBackend::failure() {
  WEFT_LOG(info, "collective group: %s", fault_.why.c_str());
  return membership_.pipe->look() == Pipe::State::open ? Exchanges::failure() : gone();
}

// A daemon leaves no group that still has members.
Backend::Heard TreeBackend::hear() {
  Heard heard = Exchanges::hear();
  if (heard.state == Pipe::State::left) heard.state = Pipe::State::broken;
  if (heard.state == Pipe::State::broken) heard.why = gone();
  return heard;
}

// The connection that brought the result flushes it: another card does not know of its writes.
core::Posted TreeBackend::flush(const void* data, size_t bytes, GroupMemory& memory) {
  const core::ReceiveSpec spec{const_cast<void*>(data), bytes, kHeadTag,
                               static_cast<ComMemory&>(memory).receiving[0], nullptr};
  return membership_.pipe->receiving().iflush(std::span(&spec, 1));
}

}  // namespace weft::coll
