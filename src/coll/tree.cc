// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/tree.h"

#include <algorithm>
#include <cstring>

#include "src/base/log.h"
#include "src/base/reserve.h"
#include "src/coll/plan.h"

// Heads, chunks and results between a rank and its daemon.
namespace weft::coll {

namespace {

// A head and the data of a small operation behind it.
constexpr size_t kHeadSlot = kOperationHeadBytes + kInlineBytes;
// Messages under way in each direction; fewer than a comm has requests (core::kMaxRequests).
constexpr size_t kMostEachWay = 24;

}  // namespace

TreeBackend::TreeBackend(Membership membership, uint32_t rank, size_t chunkBytes)
    : membership_(std::move(membership)), rank_(rank), chunkBytes_(chunkBytes), slots_(kOperations) {
  bond_.add(-1, *membership_.pipe);
}

Result<std::unique_ptr<TreeBackend>> TreeBackend::create(Membership membership, uint32_t rank,
                                                         size_t chunkBytes) {
  auto tree = std::make_unique<TreeBackend>(std::move(membership), rank, chunkBytes);
  TRY(tree->heads_, Staging::create(kOperations * kHeadSlot));
  TRY(tree->headMemory_, tree->heads_.registerOn(tree->membership_.pipe->sending()));
  return tree;
}

// Memory:

Result<std::unique_ptr<GroupMemory>> TreeBackend::registerMemory(const MemoryDesc& desc) {
  auto memory = std::make_unique<TreeMemory>();
  memory->host = desc.kind == MemoryKind::host;
  TRY(memory->sending, membership_.pipe->sending().registerMemory(desc));
  auto receiving = membership_.pipe->receiving().registerMemory(desc);
  if (!receiving) {
    (void)membership_.pipe->sending().deregisterMemory(memory->sending);
    return receiving.takeError();
  }
  memory->receiving = *receiving;
  return std::unique_ptr<GroupMemory>(std::move(memory));
}

void TreeBackend::deregisterMemory(GroupMemory& memory) {
  auto& known = static_cast<TreeMemory&>(memory);
  (void)membership_.pipe->sending().deregisterMemory(known.sending);
  (void)membership_.pipe->receiving().deregisterMemory(known.receiving);
}

// The connection that brought the result flushes it: another card does not know of its writes.
core::Posted TreeBackend::flush(const void* data, size_t bytes, GroupMemory& memory) {
  const core::ReceiveSpec spec{const_cast<void*>(data), bytes, kResultTag,
                               static_cast<TreeMemory&>(memory).receiving, nullptr};
  return membership_.pipe->receiving().iflush(std::span(&spec, 1));
}

Backend::Failure TreeBackend::flushFailure() {
  return {membership_.pipe->errorOf(membership_.pipe->receiving()).detail(), true};
}

// Operations:

std::byte* TreeBackend::headOf(const Slot& slot) const {
  return heads_.data() + static_cast<size_t>(&slot - slots_.data()) * kHeadSlot;
}

Span TreeBackend::chunkOf(const Slot& slot, size_t index) const {
  return {index * chunkBytes_, std::min<size_t>((index + 1) * chunkBytes_, slot.head.bytes)};
}

void TreeBackend::describe(Slot& slot, uint64_t turn) const {
  const Operation& operation = slot.operation;
  const bool windowed =
      operation.kind == OperationKind::allGather || operation.kind == OperationKind::reduceScatter;
  slot.head = {};
  slot.head.sequence = turn;
  slot.head.kind = operation.kind;
  slot.head.type = operation.type;
  slot.head.op = operation.op;
  slot.head.bytes = windowed ? operation.windowBytes : operation.bytes;
  if (windowed) slot.head.bytesPerRank = operation.bytesPerRank;
  if (windowed) slot.head.windowOffset = operation.windowOffset;
  const auto* memory = static_cast<const TreeMemory*>(operation.sendMemory);
  slot.head.inlined = slot.head.bytes <= kInlineBytes && (!memory || memory->host);
  slot.chunks = slot.head.inlined ? 1 : (slot.head.bytes + chunkBytes_ - 1) / chunkBytes_;
}

Backend::Begun TreeBackend::begin(uint64_t turn, const Operation& operation) {
  Slot& slot = slotOf(turn);
  slot.operation = operation;
  describe(slot, turn);
  slot.sent = slot.asked = slot.flights = 0;
  slot.enter(Slot::State::running);
  next_ = turn + 1;
  pass();
  return state_ == State::moving ? Begun::begun : Begun::failed;
}

// A step of all operations: requests that are done first, then receives, then sends.
void TreeBackend::pass() {
  if (state_ != State::moving) return;
  if (testFlights(outgoing_) && testFlights(incoming_) && postReceives() && postSends()) return finishSlots();
  if (failure_.why.empty()) failure_ = loss();
  enter(State::failed);
}

Backend::Failure TreeBackend::loss() const {
  return {format("the aggregation daemon %s is gone", membership_.daemon.c_str()), true};
}

Backend::Step TreeBackend::advance(uint64_t turn) {
  Slot& slot = slotOf(turn);
  if (slot.state == Slot::State::running) pass();
  if (slot.state == Slot::State::done) {
    slot.enter(Slot::State::free);
    return Step::done;
  }
  return state_ == State::failed ? Step::failed : Step::going;
}

bool TreeBackend::send(Slot& slot, const std::byte* data, size_t bytes, core::MemoryHandle* memory, int tag,
                       bool* posted) {
  const core::Posted sent = membership_.pipe->sending().isend(data, bytes, tag, memory, nullptr);
  *posted = sent.ok && sent.request;
  if (!*posted) return sent.ok;
  outgoing_.push_back({sent.request, bytes, &slot, true});
  slot.flights++;
  return true;
}

// Data of at most kInlineBytes travels with the head, copied: the application's memory is not sent then.
bool TreeBackend::postHead(Slot& slot, bool* posted) {
  std::byte* at = headOf(slot);
  const Bytes head = slot.head.encode();
  std::memcpy(at, head.data(), head.size());
  size_t bytes = head.size();
  if (slot.head.inlined) {
    const Span piece = sentOf(slot.head, rank_, {0, slot.head.bytes});
    if (piece.bytes() > 0) std::memcpy(at + bytes, slot.operation.send, piece.bytes());
    bytes += piece.bytes();
  }
  if (!send(slot, at, bytes, headMemory_, kHeadTag, posted)) return false;
  if (*posted) bytesSent_ += bytes - head.size();
  return true;
}

bool TreeBackend::postChunk(Slot& slot, size_t index, bool* posted) {
  const Span piece = sentOf(slot.head, rank_, chunkOf(slot, index));
  const size_t first = slot.head.kind == OperationKind::allGather ? partOf(slot.head, rank_).begin : 0;
  const auto* memory = static_cast<const TreeMemory*>(slot.operation.sendMemory);
  const auto* from =
      static_cast<const std::byte*>(slot.operation.send) + (piece.bytes() ? piece.begin - first : 0);
  if (!send(slot, from, piece.bytes(), memory ? memory->sending : nullptr, kDataTag, posted)) return false;
  if (*posted) bytesSent_ += piece.bytes();
  return true;
}

// Heads and chunks leave in the order of the operations.
bool TreeBackend::postSends() {
  while (sending_ < next_ && outgoing_.size() < kMostEachWay) {
    Slot& slot = slotOf(sending_);
    const size_t wanted = slot.head.inlined ? 1 : 1 + slot.chunks;
    if (slot.sent == wanted) {
      sending_++;
      continue;
    }
    bool posted = false;
    const bool fine = slot.sent == 0 ? postHead(slot, &posted) : postChunk(slot, slot.sent - 1, &posted);
    if (!fine) return false;
    if (!posted) return true;
    slot.sent++;
  }
  return true;
}

bool TreeBackend::postReceive(Slot& slot, size_t index, bool* posted) {
  const Span chunk = slot.head.inlined ? Span{0, slot.head.bytes} : chunkOf(slot, index);
  const Span piece = receivedOf(slot.head, rank_, chunk);
  const size_t first = slot.head.kind == OperationKind::reduceScatter ? partOf(slot.head, rank_).begin : 0;
  const auto* memory = static_cast<const TreeMemory*>(slot.operation.receiveMemory);
  auto* to = static_cast<std::byte*>(slot.operation.receive) + (piece.bytes() ? piece.begin - first : 0);
  const core::Posted asked = membership_.pipe->receiving().irecvOne(
      to, piece.bytes(), kResultTag, memory ? memory->receiving : nullptr, nullptr);
  *posted = asked.ok && asked.request;
  if (!*posted) return asked.ok;
  incoming_.push_back({asked.request, piece.bytes(), &slot, false});
  slot.flights++;
  return true;
}

bool TreeBackend::postReceives() {
  while (receiving_ < next_ && incoming_.size() < kMostEachWay) {
    Slot& slot = slotOf(receiving_);
    if (slot.asked == slot.chunks) {
      receiving_++;
      continue;
    }
    bool posted = false;
    if (!postReceive(slot, slot.asked, &posted)) return false;
    if (!posted) return true;
    slot.asked++;
  }
  return true;
}

// Tests the oldest request first and stops at the first that is not done: each test of such a request polls
// the network.
bool TreeBackend::testFlights(std::deque<Flight>& flights) {
  while (!flights.empty()) {
    const Flight& flight = flights.front();
    int size = 0;
    const core::Tested tested = core::test(flight.request, &size);
    if (!tested.ok) return false;
    if (!tested.done) return true;
    if (!flight.sends && static_cast<size_t>(size) != flight.bytes) {
      failure_.why = format("the aggregation daemon %s sent %d bytes where %zu were expected",
                            membership_.daemon.c_str(), size, flight.bytes);
      return false;
    }
    flight.slot->flights--;
    flights.pop_front();
  }
  return true;
}

// An operation is done when all its messages are posted and none is under way.
void TreeBackend::finishSlots() {
  while (oldest_ < next_ && slotOf(oldest_).state != Slot::State::running) oldest_++;
  for (uint64_t at = oldest_; at < next_; at++) {
    Slot& slot = slotOf(at);
    const bool all = at < sending_ && at < receiving_ && slot.flights == 0;
    if (slot.state == Slot::State::running && all) slot.enter(Slot::State::done);
  }
}

}  // namespace weft::coll
