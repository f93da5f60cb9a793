// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/rma/receiver.h"

#include <algorithm>
#include <cinttypes>

#include "src/base/log.h"

// Heads, the places of their bytes, and the order in which signals are added.
namespace weft::rma {

namespace {

constexpr size_t kPiecesAtOnce = 64;    // receives of one stream that are posted at a time
constexpr size_t kMostArrivals = 4096;  // puts that are not retired; more heads wait at the sender

}  // namespace

Result<std::unique_ptr<Receiver>> Receiver::create(core::RecvComm& comm, uint32_t rank, uint32_t self,
                                                   const OwnMemory& memory) {
  auto receiver = std::make_unique<Receiver>(comm, rank, self, memory);
  TRY(receiver->slots_, coll::Staging::create(kHeadsAtOnce * kSlotBytes));
  TRY(receiver->memory_, receiver->slots_.registerOn(comm));
  comm.mayChange();
  comm.mayIdle();  // a peer may have nothing to say for as long as it likes
  return receiver;
}

Error Receiver::wrong(const std::string& why) const {
  return Error(Code::remote, "one-sided operations", format("rank %u: %s", rank_, why.c_str()));
}

void Receiver::await(const Window& to, uint64_t offset, uint64_t bytes, uint32_t piece, Request* request) {
  gets_.waiting.push_back({to.at(offset), bytes, piece, &to, nullptr, request});
}

void Receiver::drop() {
  for (const Arrival& arrival : arrivals_) {
    if (arrival.window) arrival.window->unuse(rank_);
    if (arrival.signal) arrival.signal->unuse(rank_);
  }
  for (Stream* stream : {&puts_, &gets_}) {
    stream->waiting.clear();
    stream->flights.clear();
  }
  headFlights_.clear();
  placed_.clear();
  placedFlights_.clear();
  places_ = false;
  arrivals_.clear();
  batch_ = {};
}

Status Receiver::advance(Desk& desk) {
  for (Stream* stream : {&puts_, &gets_}) TRY(testPieces(*stream));
  postHeads();
  TRY(testHeads(desk));
  for (Stream* stream : {&puts_, &gets_}) {
    const size_t before = stream->flights.size();
    TRY(postPieces(*stream));
    if (before == 0 && !stream->flights.empty())
      TRY(testPieces(*stream));  // the bytes may have come with the head
  }
  TRY(testPlaced());
  return retire(desk);
}

// Receives for heads are posted and come in a ring's order. Behind a goodbye come only as many more as
// receives stand, so that none stands when the other end closes its comm. While too many puts wait, none is
// posted: the sender then keeps its heads.
void Receiver::postHeads() {
  while (!broken_ && headFlights_.size() < kHeadsAtOnce - goodbyes_ && arrivals_.size() < kMostArrivals) {
    std::byte* slot = slots_.data() + posted_ % kHeadsAtOnce * kSlotBytes;
    const core::Posted posted = comm_.irecvOne(slot, kSlotBytes, kHeadTag, memory_, nullptr);
    broken_ = !posted.ok;
    if (!posted.request) return;
    headFlights_.push_back(posted.request);
    posted_++;
  }
}

// A slot is used again as soon as its head was taken.
Status Receiver::testHeads(Desk& desk) {
  for (size_t taken = 0; taken < kHeadsAtOnce && !headFlights_.empty() && !broken_; taken++) {
    int size = 0;
    // One poll is enough: what it found is acted on before the next one.
    const core::Tested tested =
        taken == 0 ? core::test(headFlights_.front(), &size) : core::testArrived(headFlights_.front(), &size);
    broken_ = !tested.ok;
    if (!tested.ok || !tested.done) return {};
    headFlights_.pop_front();
    const std::span<const std::byte> message(slots_.data() + sequence_ % kHeadsAtOnce * kSlotBytes,
                                             static_cast<size_t>(size));
    Head head;
    if (!readHead(message, &head)) return wrong("a message that is none of these operations");
    if (head.sequence != sequence_)
      return wrong(format("message %" PRIu64 " came where %" PRIu64 " was due", head.sequence, sequence_));
    sequence_++;
    TRY(take(desk, head, message.subspan(kHeadBytes)));
    postHeads();
  }
  return {};
}

Status Receiver::take(Desk& desk, const Head& head, std::span<const std::byte> behind) {
  if (head.kind == Kind::goodbye && ++goodbyes_ < kHeadsAtOnce) return {};
  return head.kind == Kind::put ? takePut(desk, head, behind) : desk.heard(rank_, head, behind);
}

// A put into a window that this rank gave up meanwhile is received and goes nowhere: ranks give up their
// windows one after the other. Any other range that is not this rank's ends the connection.
Status Receiver::takePut(Desk& desk, const Head& head, std::span<const std::byte> behind) {
  bool known = false;
  Window* window = head.bytes > 0 ? desk.window(head.window, &known) : nullptr;
  if (head.bytes > 0 && !known) return wrong(format("a put into window %u, which there is not", head.window));
  if (window && !window->covers(self_, head.offset, head.bytes))
    return wrong("a put of " + window->describe(self_, head.offset, head.bytes));
  if (head.inlined > 0 && head.inlined != head.bytes) return wrong("a put of another size than it says");
  Window* signal = head.signals ? desk.window(head.signalWindow, &known) : nullptr;
  if (head.signals && !known)
    return wrong(format("a signal into window %u, which there is not", head.signalWindow));
  if (signal && !signal->covers(self_, head.signalOffset, sizeof(uint64_t)))
    return wrong("a signal of " + signal->describe(self_, head.signalOffset, sizeof(uint64_t)));
  if (window) window->use(rank_);
  if (signal) signal->use(rank_);
  arrivals_.push_back({head, window, signal, head.bytes});
  return placePut(head, window, behind);
}

Status Receiver::placePut(const Head& head, Window* window, std::span<const std::byte> behind) {
  Arrival& arrival = arrivals_.back();
  if (head.bytes == 0) return {};
  std::byte* to = window ? window->at(head.offset) : nullptr;
  if (head.placed) {
    if (!places_ || (window && window->staged)) return wrong("bytes for a window that was not opened to it");
    placed_.push_back({head.bytes, head.piece, &arrival});
    return {};
  }
  if (head.inlined == 0) {
    if (window && !window->staged) letPlace(*window);
    if (window && window->staged && head.piece != kStagedPieceBytes)
      return wrong("pieces that are too large");
    puts_.waiting.push_back({to, head.bytes, head.piece, window, &arrival, nullptr});
    return {};
  }
  if (window && window->direct()) return wrong("bytes behind a head for memory of a GPU");
  if (window) {
    TRY(own_.write(*window, to, behind.data(), behind.size()));
  }
  arrival.left = 0;
  return {};
}

Result<Receiver::Place> Receiver::placeOf(Stream& stream, const Wanted& wanted) {
  if (wanted.window && !wanted.window->staged) return Place{wanted.to, wanted.window->receiving[rank_]};
  if (wanted.window) {
    TRY(const Bounce* bounce,
        stream.bounce.get(own_.errands(), own_.driver(), wanted.window->memory.gpu, comm_));
    return bounce ? Place{bounce->next(), bounce->memory()} : Place();
  }
  if (!nowhereMemory_) {
    TRY(nowhere_, coll::Staging::create(kPieceBytes));
    TRY(nowhereMemory_, nowhere_.registerOn(comm_));
  }
  return Place{nowhere_.data(), nowhereMemory_};
}

Status Receiver::postPieces(Stream& stream) {
  while (!broken_ && !stream.waiting.empty() && stream.flights.size() < kPiecesAtOnce) {
    Wanted& wanted = stream.waiting.front();
    const uint64_t bytes = std::min<uint64_t>(wanted.piece, wanted.bytes);
    TRY(const Place place, placeOf(stream, wanted));
    if (!place.data) return {};
    const core::Posted posted =
        comm_.irecvOne(place.data, static_cast<size_t>(bytes), stream.tag, place.memory, nullptr);
    broken_ = !posted.ok;
    if (!posted.request) return {};
    const bool staged = wanted.window && wanted.window->staged;
    if (staged) stream.bounce->take();
    stream.flights.push_back({posted.request, bytes, wanted.arrival, wanted.request, wanted.to, wanted.window,
                              staged ? place.data : nullptr, nullptr});
    if (wanted.to) wanted.to += bytes;
    wanted.bytes -= bytes;
    if (wanted.bytes == 0) stream.waiting.pop_front();
  }
  return {};
}

// The other rank has put into this window, and may do so again: from now on the fabric writes there at once.
void Receiver::letPlace(const Window& window) {
  if (window.leaving) return;
  const MemoryDesc& memory = window.memory;
  core::MemoryHandle* handle = window.receiving[rank_];
  if (comm_.openMemory(handle, memory.address, memory.length, window.number)) places_ = true;
}

void Receiver::postPlaced() {
  while (!broken_ && placedFlights_.size() < core::kPlacedAtOnce) {
    const core::Posted posted = comm_.irecvPlaced(kPieceBytes, kPlacedTag);
    broken_ = !posted.ok;
    if (!posted.request) return;
    placedFlights_.push_back(posted.request);
  }
}

// Bytes may be here before their head: their receive waits for it. Of a window that is given up they may be
// missing, as the other end sends them no more.
Status Receiver::testPlaced() {
  if (!places_) return {};
  postPlaced();
  for (bool polled = false; !broken_ && !placed_.empty() && !placedFlights_.empty(); polled = true) {
    Placed& next = placed_.front();
    int size = 0;
    const core::Tested tested =
        polled ? core::testArrived(placedFlights_.front(), &size) : core::test(placedFlights_.front(), &size);
    broken_ = !tested.ok;
    if (!tested.ok || !tested.done) return {};
    placedFlights_.pop_front();
    const uint64_t due = std::min<uint64_t>(next.piece, next.bytes);
    const bool goes = !next.arrival->window || next.arrival->window->leaving;
    if (static_cast<uint64_t>(size) != due && !(goes && size == 0))
      return wrong(format("%d placed bytes came where %" PRIu64 " were due", size, due));
    next.bytes -= due;
    next.arrival->left -= due;
    if (next.bytes == 0) placed_.pop_front();
    postPlaced();
  }
  return {};
}

// The last bytes of a get into a GPU's memory count once the GPU sees them. A put's are flushed with its
// signal.
bool Receiver::landed(Flight& flight) {
  const Window* window = flight.of ? flight.of->window : nullptr;
  if (!window || !window->direct() || flight.of->left != flight.bytes) return true;
  return flush(*window, flight.at, &flight.flushing);
}

// The bytes that came into a slot go on to their place.
Status Receiver::land(Stream& stream, Flight& flight) {
  if (!flight.slot) return {};
  TRY(own_.write(*flight.window, flight.at, flight.slot, static_cast<size_t>(flight.bytes)));
  flight.slot = nullptr;
  stream.bounce->giveBack();
  return {};
}

Status Receiver::testPieces(Stream& stream) {
  for (bool polled = false; !broken_ && !stream.flights.empty(); polled = true) {
    Flight& flight = stream.flights.front();
    int size = 0;
    const core::Tested tested = !flight.request ? core::Tested{true, true}
                                : polled        ? core::testArrived(flight.request, &size)
                                                : core::test(flight.request, &size);
    broken_ = !tested.ok;
    if (!tested.ok || !tested.done) return {};
    if (flight.request && static_cast<uint64_t>(size) != flight.bytes)
      return wrong(format("%d bytes came where %" PRIu64 " were due", size, flight.bytes));
    flight.request = nullptr;
    TRY(land(stream, flight));
    if (!landed(flight)) return {};
    if (flight.arrival) flight.arrival->left -= flight.bytes;
    if (flight.of) {
      flight.of->left -= flight.bytes;
      countGet(flight.bytes, flight.of->left == 0);
      flight.of->settle();
    }
    stream.flights.pop_front();
  }
  return {};
}

void Receiver::countGet(uint64_t bytes, bool whole) {
  if (stats::OneSided* counters = comm_.oneSided()) counters->countGet(bytes, whole);
}

void Receiver::countPut(const Head& head, bool signalled) {
  if (stats::OneSided* counters = comm_.oneSided()) counters->countPut(head.bytes, signalled ? 1 : 0);
}

// A GPU sees what a card wrote into its memory after a flush.
bool Receiver::flush(const Window& window, const void* at, core::Request** flushing) {
  if (!*flushing) {
    core::ReceiveSpec spec{const_cast<void*>(at), sizeof(std::byte), 0, window.receiving[rank_], nullptr};
    const core::Posted posted = comm_.iflush({&spec, 1});
    broken_ = !posted.ok;
    *flushing = posted.request;
    return posted.ok && !posted.request;
  }
  const core::Tested tested = core::test(*flushing, nullptr);
  broken_ = !tested.ok;
  return tested.ok && tested.done;
}

// False: no put has come whole since the last batch.
bool Receiver::beginBatch() {
  while (batch_.puts < arrivals_.size() && arrivals_[batch_.puts].left == 0) {
    const Arrival& next = arrivals_[batch_.puts++];
    if (!next.window || !next.window->direct()) continue;
    const Batch::Part part{next.window->memory.gpu, next.window, next.window->at(next.head.offset)};
    const auto same = std::find_if(batch_.flushes.begin(), batch_.flushes.end(),
                                   [&](const Batch::Part& one) { return one.gpu == part.gpu; });
    if (same == batch_.flushes.end())
      batch_.flushes.push_back(part);
    else
      *same = part;
  }
  return batch_.puts > 0;
}

bool Receiver::batchFlushed() {
  bool all = true;
  for (Batch::Part& part : batch_.flushes) {
    part.over = part.over || flush(*part.window, part.at, &part.request);
    all = all && part.over;
  }
  return all && !broken_;
}

// Signals of one batch to one word are added at once: nobody could have seen the sums between them, as all of
// their bytes were here before the first.
Status Receiver::retireBatch(Desk& desk) {
  struct Sum {
    Window* window;
    uint64_t offset, addend, signals;
  };
  Sum sum{nullptr, 0, 0, 0};
  const auto add = [&]() -> Status {
    return sum.window ? desk.add(*sum.window, sum.offset, sum.addend, sum.signals) : Status();
  };
  batch_.flushes.clear();
  for (; batch_.puts > 0; batch_.puts--) {
    const Arrival oldest = arrivals_.front();
    if (oldest.window) oldest.window->unuse(rank_);
    arrivals_.pop_front();
    countPut(oldest.head, oldest.signal != nullptr);
    if (!oldest.signal) continue;
    oldest.signal->unuse(rank_);
    if (sum.window != oldest.signal || sum.offset != oldest.head.signalOffset) {
      TRY(add());
      sum = {oldest.signal, oldest.head.signalOffset, 0, 0};
    }
    sum.addend += oldest.head.addend;
    sum.signals++;
  }
  return add();
}

Status Receiver::retire(Desk& desk) {
  while (!broken_) {
    if (batch_.puts == 0 && !beginBatch()) return {};
    if (!batchFlushed()) return {};
    TRY(retireBatch(desk));
  }
  return {};
}

}  // namespace weft::rma
