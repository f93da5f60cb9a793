// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/coll/tree.h"

#include <algorithm>
#include <cstring>

#include "src/base/log.h"
#include "src/base/reserve.h"
#include "src/coll/plan.h"

namespace weft::coll {

namespace {

constexpr size_t kHeadSlot = kOperationHeadBytes + kInlineBytes;
constexpr size_t kMostEachWay = 24;

}  // namespace

TreeGroup::TreeGroup(Membership membership, uint32_t rank, uint32_t ranks, size_t chunkBytes)
    : membership_(std::move(membership)),
      rank_(rank),
      ranks_(ranks),
      chunkBytes_(chunkBytes),
      slots_(kSlots) {
  for (Slot& slot : slots_) slot.group = this;
}

Result<std::unique_ptr<TreeGroup>> TreeGroup::create(Membership membership, uint32_t rank, uint32_t ranks,
                                                     size_t chunkBytes) {
  auto group = std::make_unique<TreeGroup>(std::move(membership), rank, ranks, chunkBytes);
  TRY(group->heads_, Staging::create(kSlots * kHeadSlot));
  TRY(group->headMemory_, group->heads_.registerOn(group->membership_.pipe->sending()));
  return group;
}

TreeGroup::~TreeGroup() {
  const MustNotFail closing;
  membership_.leave();
  for (const auto& memory : memories_.left()) {
    (void)membership_.pipe->sending().deregisterMemory(memory->sending);
    (void)membership_.pipe->receiving().deregisterMemory(memory->receiving);
  }
}

Result<GroupMemory*> TreeGroup::registerMemory(const MemoryDesc& desc) {
  auto memory = std::make_unique<TreeMemory>();
  memory->host = desc.kind == MemoryKind::host;
  TRY(memory->sending, membership_.pipe->sending().registerMemory(desc));
  auto receiving = membership_.pipe->receiving().registerMemory(desc);
  if (!receiving) {
    (void)membership_.pipe->sending().deregisterMemory(memory->sending);
    return receiving.takeError();
  }
  memory->receiving = *receiving;
  return memories_.keep(std::move(memory));
}

Status TreeGroup::deregisterMemory(GroupMemory* memory) {
  TRY(const auto gone, memories_.take(memory));
  TRY(membership_.pipe->sending().deregisterMemory(gone->sending));
  return membership_.pipe->receiving().deregisterMemory(gone->receiving);
}

Error TreeGroup::error() const {
  return Error(Code::remote, "collective group", broken_.empty() ? "nothing is wrong" : broken_);
}

std::byte* TreeGroup::headOf(const Slot& slot) const {
  return heads_.data() + static_cast<size_t>(&slot - slots_.data()) * kHeadSlot;
}

Span TreeGroup::chunkOf(const Slot& slot, size_t index) const {
  return {index * chunkBytes_, std::min<size_t>((index + 1) * chunkBytes_, slot.head.bytes)};
}

void TreeGroup::describeOperation(Slot& slot) const {
  const Operation& operation = slot.operation;
  const bool windowed =
      operation.kind == OperationKind::allGather || operation.kind == OperationKind::reduceScatter;
  slot.head = {};
  slot.head.sequence = next_;
  slot.head.kind = operation.kind;
  slot.head.type = operation.type;
  slot.head.op = operation.op;
  slot.head.root = static_cast<uint32_t>(operation.root);
  slot.head.bytes = windowed ? operation.windowBytes : operation.bytes;
  if (windowed) slot.head.bytesPerRank = operation.bytesPerRank;
  if (windowed) slot.head.windowOffset = operation.windowOffset;
  const auto* memory = static_cast<const TreeMemory*>(operation.sendMemory);
  slot.head.inlined = slot.head.bytes <= kInlineBytes && (!memory || memory->host);
  slot.chunks = slot.head.inlined ? 1 : (slot.head.bytes + chunkBytes_ - 1) / chunkBytes_;
}

Started TreeGroup::start(const Operation& operation) {
  if (!broken_.empty()) return {false, nullptr};
  if (const char* fault = faultOf(operation, static_cast<int>(rank_), static_cast<int>(ranks_))) {
    fail(format("rank %u started an operation that cannot be: %s", rank_, fault));
    return {false, nullptr};
  }
  Slot& slot = slotOf(next_);
  if (slot.state != State::free) {
    progress();
    return {broken_.empty(), nullptr};
  }
  slot.operation = operation;
  describeOperation(slot);
  slot.sent = slot.asked = slot.flights = 0;
  slot.state = State::running;
  next_++;
  counters_.operations++;
  progress();
  return {broken_.empty(), broken_.empty() ? &slot : nullptr};
}

// The connection that brought the result flushes it: no other one knows what it has written.
Started TreeGroup::flush(const void* data, size_t bytes, GroupMemory* memory) {
  if (!broken_.empty()) return {false, nullptr};
  Flush* flush = flushes_.take(memory, bytes);
  if (!flush) {
    fail(format("rank %u: %s", rank_, FlushTable::kFull));
    return {false, nullptr};
  }
  const auto& where = static_cast<const TreeMemory&>(*memory);
  const core::ReceiveSpec spec{const_cast<void*>(data), bytes, kResultTag, where.receiving, nullptr};
  const core::Posted posted = membership_.pipe->receiving().iflush(std::span(&spec, 1));
  if (!posted.ok) {
    (void)FlushTable::finish(*flush);
    loseTree(membership_.pipe->errorOf(membership_.pipe->receiving()).detail());
    return {false, nullptr};
  }
  flush->request = posted.request;
  if (!posted.request) flush->state = Flush::State::visible;
  return {true, flush};
}

bool TreeGroup::loseTree(const std::string& why) {
  if (broken_.empty()) treeLost_ = true;
  return fail(why);
}

bool TreeGroup::fail(const std::string& why) {
  if (!broken_.empty()) return false;
  broken_ = why;
  WEFT_LOG(warn, "collective group of %u ranks at %s: %s", ranks_, membership_.daemon.c_str(),
           broken_.c_str());
  membership_.pipe->raiseAlarm(Alarm{broken_, treeLost_}.encode());
  return false;
}

// False: the daemon has told why the group is broken, which may be that it lost its own parent.
bool TreeGroup::hearAlarm() {
  if (membership_.pipe->look() != Pipe::State::alarmed) return true;
  if (broken_.empty()) {
    broken_ = membership_.pipe->alarm().reason;
    treeLost_ = membership_.pipe->alarm().treeLost;
    WEFT_LOG(warn, "collective group of %u ranks at %s: %s", ranks_, membership_.daemon.c_str(),
             broken_.c_str());
  }
  return false;
}

void TreeGroup::progress() {
  constexpr uint64_t kAlarmEvery = 256;
  if (!broken_.empty()) return membership_.pipe->repeatAlarm();
  if (passes_++ % kAlarmEvery == 0 && !hearAlarm()) return;
  const bool fine = testFlights(outgoing_) && testFlights(incoming_) && postReceives() && postSends();
  if (fine) return finishSlots();
  // What the daemon said before it went is a better reason.
  if (hearAlarm()) loseTree(format("the aggregation daemon %s is gone", membership_.daemon.c_str()));
}

bool TreeGroup::send(Slot& slot, const std::byte* data, size_t bytes, core::MemoryHandle* memory, int tag,
                     bool* posted) {
  const core::Posted sent = membership_.pipe->sending().isend(data, bytes, tag, memory, nullptr);
  *posted = sent.ok && sent.request;
  if (!*posted) return sent.ok;
  outgoing_.push_back({sent.request, bytes, &slot, true});
  slot.flights++;
  return true;
}

bool TreeGroup::postHead(Slot& slot, bool* posted) {
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
  if (*posted) counters_.bytesSent += bytes - head.size();
  return true;
}

bool TreeGroup::postChunk(Slot& slot, size_t index, bool* posted) {
  const Span piece = sentOf(slot.head, rank_, chunkOf(slot, index));
  const size_t first = slot.head.kind == OperationKind::allGather ? partOf(slot.head, rank_).begin : 0;
  const auto* memory = static_cast<const TreeMemory*>(slot.operation.sendMemory);
  const auto* from =
      static_cast<const std::byte*>(slot.operation.send) + (piece.bytes() ? piece.begin - first : 0);
  if (!send(slot, from, piece.bytes(), memory ? memory->sending : nullptr, kDataTag, posted)) return false;
  if (*posted) counters_.bytesSent += piece.bytes();
  return true;
}

// Heads and chunks in the order of the operations.
bool TreeGroup::postSends() {
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

bool TreeGroup::postReceive(Slot& slot, size_t index, bool* posted) {
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

bool TreeGroup::postReceives() {
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

// Oldest first, and no further than they are done: each test of one that is not polls the network.
bool TreeGroup::testFlights(std::deque<Flight>& flights) {
  while (!flights.empty()) {
    const Flight& flight = flights.front();
    int size = 0;
    const core::Tested tested = core::test(flight.request, &size);
    if (!tested.ok) return false;
    if (!tested.done) return true;
    if (!flight.sends && static_cast<size_t>(size) != flight.bytes)
      return fail(format("the aggregation daemon %s sent %d bytes where %zu were expected",
                         membership_.daemon.c_str(), size, flight.bytes));
    flight.slot->flights--;
    flights.pop_front();
  }
  return true;
}

void TreeGroup::finishSlots() {
  for (uint64_t at = oldest_; at < next_; at++) {
    Slot& slot = slotOf(at);
    const bool all = at < sending_ && at < receiving_ && slot.flights == 0;
    if (slot.state == State::running && all) slot.state = State::done;
  }
}

Finished TreeGroup::testFlush(Flush& flush) {
  if (flush.state == Flush::State::visible) return FlushTable::finish(flush);
  if (!broken_.empty()) return {false, false, 0};
  const core::Tested tested = core::test(flush.request, nullptr);
  if (!tested.ok) loseTree(membership_.pipe->errorOf(membership_.pipe->receiving()).detail());
  if (!tested.ok || !tested.done) return {tested.ok, false, 0};
  return FlushTable::finish(flush);
}

Finished TreeGroup::test(GroupRequest* request) {
  if (Flush* flush = flushes_.find(request)) return testFlush(*flush);
  auto& slot = static_cast<Slot&>(*request);
  if (slot.state == State::running) progress();
  if (slot.state != State::done) return {broken_.empty(), false, 0};
  slot.state = State::free;
  while (oldest_ < next_ && slotOf(oldest_).state == State::free) oldest_++;
  return {true, true, receivedOf(slot.head, rank_, {0, slot.head.bytes}).bytes()};
}

}  // namespace weft::coll
