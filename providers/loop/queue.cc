// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/loop/queue.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "providers/loop/endpoint.h"
#include "src/base/log.h"

namespace weft::loop {
namespace {

// Gives a claimed transfer back unless it was placed. The Placer may find no memory and end in an exception;
// the message then waits for the next poll, as no one else may take it back while it is claimed.
class Claim {
 public:
  explicit Claim(Transfer& transfer) : transfer_(transfer) {}
  ~Claim() {
    if (!isSettled_) transfer_.set(Phase::waiting);
  }
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;
  void settle() { isSettled_ = true; }

 private:
  Transfer& transfer_;
  bool isSettled_ = false;
};

// What holds one of the inbox's places until it is handed out.
bool takesRoom(const Completion& completion) {
  return completion.kind == CompletionKind::notified || completion.kind == CompletionKind::landed;
}

}  // namespace

LoopQueue::LoopQueue(LoopDevice& device, const QueueDepths& depths)
    : device_(device),
      depths_(depths),
      inbox_(std::make_shared<Inbox>(depths.notifications)),
      outbox_(std::make_shared<Outbox>(device.options().transfers() ? depths.sends : 0, device.regions(),
                                       device.card())),
      random_(device.options().seed + static_cast<uint64_t>(device.rail())) {
  for (size_t i = outbox_->transfers.size(); i > 0; i--) freeSlots_.push_back(static_cast<uint32_t>(i - 1));
  outstanding_.reserve(outbox_->transfers.size());
  incoming_.reserve(inbox_->capacity());
  ready_.reserve(size_t{depths.sends} + depths.notifications + 64);
  const auto& rates = device.options().bytesPerPoll;
  const auto rail = static_cast<size_t>(device.rail());
  if (rail < rates.size()) bytesPerPoll_ = static_cast<int64_t>(rates[rail]);
}

LoopQueue::~LoopQueue() {
  takeArrivals();  // lets go of the peers' Outboxes
}

Result<std::unique_ptr<Endpoint>> LoopQueue::openEndpoint() {
  auto endpoint = std::make_unique<LoopEndpoint>(*this);
  endpoints_.push_back(endpoint.get());
  return std::unique_ptr<Endpoint>(std::move(endpoint));
}

size_t LoopQueue::poll(std::span<Completion> out) {
  takeArrivals();
  land();
  collect();
  return emit(out);
}

void LoopQueue::takeArrivals() {
  Arrival arrival;
  while (incoming_.size() < incoming_.capacity() && inbox_->pop(&arrival)) {
    const auto later = [](const Arrival& a, const Arrival& b) { return a.due < b.due; };
    const auto at = device_.card() ? std::upper_bound(incoming_.begin(), incoming_.end(), arrival, later)
                                   : incoming_.end();
    incoming_.insert(at, std::move(arrival));
  }
}

// Lands as much as the options allow in one poll. Landed arrivals move below front_ and go at the end.
void LoopQueue::land() {
  const LoopOptions& options = device_.options();
  uint32_t pieces = options.pieceBytes ? std::max(options.piecesPerPoll, 1u) : ~0u;
  byteCredit_ = std::min(byteCredit_ + bytesPerPoll_, bytesPerPoll_);
  while (front_ < incoming_.size() && pieces-- > 0 && (bytesPerPoll_ == 0 || byteCredit_ > 0)) {
    if (options.shuffle) {
      const size_t pick = front_ + random_.below(incoming_.size() - front_);
      std::swap(incoming_[front_], incoming_[pick]);
    }
    if (!isDue(incoming_[front_].due)) break;
    landOne(incoming_[front_]);
  }
  incoming_.erase(incoming_.begin(), incoming_.begin() + static_cast<ptrdiff_t>(front_));
  front_ = 0;
}

void LoopQueue::landOne(Arrival& arrival) {
  if (arrival.kind != Arrival::Kind::transfer) return finish(arrival);
  if (!arrival.transfer->claim(arrival.generation)) {  // taken back
    if (arrival.notify) inbox_->releaseNotification();
    front_++;
    return;
  }
  if (arrival.transfer->op == Opcode::message && !arrival.transfer->isPlaced && !placeClaimed(arrival)) {
    inbox_->releaseNotification();
    front_++;
    return;
  }
  const uint64_t placed = arrival.transfer->placed;
  const LoopOptions& options = device_.options();
  size_t pieceBytes = options.pieceBytes;
  if (bytesPerPoll_ && !pieceBytes) pieceBytes = static_cast<size_t>(std::min<int64_t>(bytesPerPoll_, 4096));
  const Piece piece = landPiece({*device_.regions(), *arrival.outbox->regions, options.mostCopied},
                                *arrival.transfer, pieceBytes, random_);
  byteCredit_ -= static_cast<int64_t>(piece.bytes);
  device_.stats().bytes.fetch_add(piece.bytes, std::memory_order_relaxed);
  if (piece.phase == Phase::waiting) return;
  if (arrival.awaited || piece.phase == Phase::failed) tellSender(arrival);
  if (piece.phase == Phase::landed && placed != 0) return finishMessage(arrival, placed);
  if (piece.phase == Phase::landed && arrival.notify && !arrival.isMessage) return finish(arrival);
  if (arrival.notify) inbox_->releaseNotification();
  front_++;
}

// The acknowledgement is on its way. Where the target polls late the sender waits for that, as the bytes are
// not there before.
void LoopQueue::tellSender(const Arrival& arrival) const {
  const auto& card = arrival.outbox->card;
  if (card) card->tell(std::max(arrival.due + card->latency(), card->now()));
}

bool LoopQueue::placeClaimed(const Arrival& arrival) {
  Claim claim(*arrival.transfer);
  const bool placed = place(arrival);
  claim.settle();
  return placed;
}

// A message's header is here: its Placer says where the bytes go. False: it was refused, and both ends of the
// lane hear of it.
bool LoopQueue::place(const Arrival& arrival) {
  Transfer& transfer = *arrival.transfer;
  LoopEndpoint* endpoint = endpointOf(arrival.target);
  if (!endpoint || !placer_) return refuse(transfer, endpoint, "nobody here takes messages"), false;
  const Place place = placer_->place(*endpoint, {transfer.imm, transfer.label}, transfer.length, false);
  if (place.refusal) return refuse(transfer, endpoint, place.refusal), false;
  transfer.isPlaced = true;
  transfer.placed = place.context;
  transfer.remoteKey = place.memory ? static_cast<const LoopMemory*>(place.memory)->key() : 0;
  transfer.remoteOffset = place.offset;
  if (!place.memory) transfer.length = 0;  // read and dropped
  return true;
}

void LoopQueue::refuse(Transfer& transfer, LoopEndpoint* endpoint, const char* why) {
  refusal_ = why;
  transfer.error = EPROTO;
  transfer.set(Phase::failed);
  if (!endpoint) return;
  endpoint->broke(EPROTO);
}

void LoopQueue::finishMessage(const Arrival& arrival, uint64_t context) {
  front_++;
  complete({.kind = CompletionKind::landed,
            .length = arrival.data >> 32,
            .context = context,
            .source = endpointOf(arrival.target)});
}

// A notification, or a peer's goodbye.
void LoopQueue::finish(const Arrival& arrival) {
  front_++;
  LoopEndpoint* endpoint = endpointOf(arrival.target);
  if (arrival.kind == Arrival::Kind::closed) {
    if (endpoint) endpoint->broke(ECONNRESET);
    return;
  }
  complete({.kind = CompletionKind::notified,
            .imm = static_cast<uint32_t>(arrival.data),
            .length = arrival.data >> 32,
            .source = endpoint});
}

// The caller has its buffer back before the target reads it, so the bytes travel with the transfer.
void LoopQueue::stage(Transfer& transfer) {
  const auto pinned = device_.regions()->use(transfer.localKey);
  const std::byte* from = pinned.at(transfer.localOffset, transfer.length);
  if (!from) return;  // landing it will fail
  if (transfer.staging.size() < transfer.length) transfer.staging.resize(transfer.length);
  std::memcpy(transfer.staging.data(), from, transfer.length);
  transfer.localKey = 0;
}

bool LoopQueue::isEarly(const Work& work) const {
  const Delivery delivery = device_.info().delivery;
  if (work.op == Opcode::read || delivery == Delivery::always) return false;
  return delivery == Delivery::accepted || !work.delivered;
}

void LoopQueue::fill(Transfer& transfer, const Work& work) {
  transfer.op = work.op;
  transfer.length = work.length;
  const auto* memory = static_cast<const LoopMemory*>(work.memory);
  transfer.localKey = work.length ? memory->key() : 0;
  transfer.localOffset = work.length ? memory->offsetOf(work.local) : 0;
  transfer.remoteKey = work.remote.key;
  transfer.remoteOffset = work.remoteOffset;
  transfer.imm = work.imm;
  transfer.label = work.remote;
  transfer.placed = 0;
  transfer.isPlaced = false;
  transfer.pieces = transfer.done = 0;
  if (work.length > 0 && isEarly(work)) stage(transfer);
}

bool LoopQueue::dispatch(LoopEndpoint& endpoint, const Work& work, const Port& target) {
  if (freeSlots_.empty()) return false;
  const uint32_t slot = freeSlots_.back();
  Transfer& transfer = outbox_->transfers[slot];
  fill(transfer, work);
  Arrival arrival;
  arrival.kind = Arrival::Kind::transfer;
  arrival.isMessage = work.op == Opcode::message;
  arrival.notify = work.op == Opcode::writeNotify || arrival.isMessage;
  arrival.data = work.imm | uint64_t{work.length} << 32;
  arrival.target = target.id;
  arrival.outbox = outbox_;
  arrival.transfer = &transfer;
  arrival.generation = transfer.generation();
  Outstanding taken{.slot = slot, .endpoint = &endpoint, .context = work.context};
  taken.unsignaled = work.unsignaled;
  taken.early = isEarly(work);
  arrival.awaited = !work.unsignaled && !taken.early;
  if (device_.card() && target.card) arrival.due = schedule(work, target, &taken);
  const TimePoint due = arrival.due;
  transfer.publish();
  if (!target.inbox->push(std::move(arrival))) {
    transfer.release();
    return false;
  }
  freeSlots_.pop_back();
  outstanding_.push_back(taken);
  if (device_.card() && taken.early) device_.card()->tell(taken.tells);
  if (target.card) target.card->tell(due);
  return true;
}

// The time at which it lands. A read asks first.
TimePoint LoopQueue::schedule(const Work& work, const Port& target, Outstanding* taken) const {
  Card& card = *device_.card();
  const bool asks = work.op == Opcode::read;
  const Card::Journey journey =
      asks ? target.card->carry(card, work.length) : card.carry(*target.card, work.length);
  const TimePoint landed = journey.landed + (asks ? card.latency() : Nanoseconds(0));
  taken->tells = taken->early ? journey.left : landed + (asks ? Nanoseconds(0) : card.latency());
  return landed;
}

// Completes what landed, failed, or never needed to land for that.
void LoopQueue::collect() {
  for (size_t i = 0; i < outstanding_.size(); i++) settle(outstanding_[i]);
  sweep();
}

void LoopQueue::settle(Outstanding& work) {
  if (work.over) return;
  Transfer& transfer = outbox_->transfers[work.slot];
  const Phase phase = transfer.phase();
  if (phase == Phase::failed) return settleFailed(work, transfer.error);
  if (!isDue(work.tells)) return;
  if (!work.reported && !work.unsignaled && (work.early || phase == Phase::landed)) tell(work, 0);
  if (phase == Phase::landed) close(work);
}

void LoopQueue::settleFailed(Outstanding& work, int error) {
  device_.stats().errors.fetch_add(1, std::memory_order_relaxed);
  close(work);
  if (work.early && device_.options().silentFailures) {
    if (!work.reported && !work.unsignaled) tell(work, 0);
    return;
  }
  if (work.reported) return work.endpoint->broke(error);
  tell(work, error);
  work.endpoint->workFailed();
}

void LoopQueue::tell(Outstanding& work, int error) {
  work.reported = true;
  complete({.kind = CompletionKind::sent,
            .ok = error == 0,
            .error = error,
            .context = work.context,
            .source = work.endpoint});
}

void LoopQueue::close(Outstanding& work) {
  outbox_->transfers[work.slot].release();
  freeSlots_.push_back(work.slot);
  work.over = true;
}

void LoopQueue::sweep() {
  std::erase_if(outstanding_, [](const Outstanding& work) { return work.over; });
}

void LoopQueue::cancel(const LoopEndpoint& endpoint, int error) {
  for (size_t i = 0; i < outstanding_.size(); i++) {
    Outstanding& work = outstanding_[i];
    if (work.over || work.endpoint != &endpoint) continue;
    if (!outbox_->transfers[work.slot].cancel()) {
      settle(work);
      continue;
    }
    freeSlots_.push_back(work.slot);
    work.over = true;
    device_.stats().cancelled.fetch_add(1, std::memory_order_relaxed);
    if (!work.reported) tell(work, error);
  }
}

void LoopQueue::detach(LoopEndpoint& endpoint) {
  cancel(endpoint, ECANCELED);
  sweep();
  std::erase(endpoints_, &endpoint);
  const auto orphan = [&](const Completion& completion) { return completion.source == &endpoint; };
  ready_.erase(ready_.begin(), ready_.begin() + static_cast<ptrdiff_t>(readyFront_));
  readyFront_ = 0;
  for (const Completion& completion : ready_) {
    if (!orphan(completion)) continue;
    readySent_ -= completion.kind == CompletionKind::sent;
    if (takesRoom(completion)) inbox_->releaseNotification();
  }
  std::erase_if(ready_, orphan);
}

void LoopQueue::complete(const Completion& completion) {
  readySent_ += completion.kind == CompletionKind::sent;
  ready_.push_back(completion);
}

size_t LoopQueue::emit(std::span<Completion> out) {
  size_t n = 0;
  while (n < out.size() && readyFront_ < ready_.size()) {
    const Completion& completion = ready_[readyFront_++];
    out[n++] = completion;
    readySent_ -= completion.kind == CompletionKind::sent;
    if (!takesRoom(completion)) continue;
    inbox_->releaseNotification();
    device_.stats().notifications.fetch_add(1, std::memory_order_relaxed);
  }
  if (n > 0) device_.stats().handedOut.fetch_add(n, std::memory_order_relaxed);
  if (readyFront_ == ready_.size() || readyFront_ * 2 > ready_.capacity()) {
    ready_.erase(ready_.begin(), ready_.begin() + static_cast<ptrdiff_t>(readyFront_));
    readyFront_ = 0;
  }
  return n;
}

LoopEndpoint* LoopQueue::endpointOf(uint64_t port) const {
  for (LoopEndpoint* endpoint : endpoints_) {
    if (endpoint->port().id == port) return endpoint;
  }
  return nullptr;
}

std::string LoopQueue::explain(const Completion& completion) const {
  const char* why = "it failed";
  switch (completion.error) {
    case 0:
      return "no error";
    case EACCES:
      why = "the peer's memory is not registered there, or the range leaves it";
      break;
    case EFAULT:
      why = "the local buffer is not inside its registration";
      break;
    case EINVAL:
      why = "a work without a buffer or its registration";
      break;
    case EMSGSIZE:
      why = "a work larger than the device takes";
      break;
    case ENOBUFS:
      why = "more notifications than the peer's queue was opened for";
      break;
    case EPROTO:
      return format("%s: %s", device_.info().name.c_str(), refusal_);
    case ECANCELED:
      why = "the lane broke or was retired before";
      break;
    case ECONNRESET:
      why = "the peer closed its lane";
      break;
    case ECONNREFUSED:
      why = "the peer's lane is not there, or connected to another one";
      break;
    default:
      break;
  }
  return format("%s: %s", device_.info().name.c_str(), why);
}

}  // namespace weft::loop
