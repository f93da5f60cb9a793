// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/verbs/endpoint.h"

#include <algorithm>
#include <cerrno>

#include "providers/verbs/memory.h"
#include "providers/verbs/words.h"
#include "src/base/log.h"
#include "src/base/reserve.h"

// A lane over its queue pairs; connecting, fencing and closing are in the second half.
namespace weft::verbs {

namespace {

// A work that fits into a packet of the largest MTU is not worth a path of its own.
constexpr size_t kSmallBytes = 4096;  // bytes

// For the first queue pair. With that depth every queue pair has room for the three requests of a write that
// goes apart.
constexpr uint32_t kLeastApartDepth = 8;

// A packet that was on the wire when the queue pair went to ERR may still land at the peer, whose queue pair
// knows nothing of it. No switch holds a packet for this long.
constexpr Milliseconds kStrayPackets{50};

LaneLife::Terms termsOf(const Settings& settings) {
  return {.connect = settings.connectTimeout,
          .close = settings.closeTimeout,
          .noAnswer = "no connection within WEFT_CONNECT_TIMEOUT"};
}

}  // namespace

VerbsEndpoint::VerbsEndpoint(VerbsQueue& queue)
    : queue_(queue), life_(*this, queue.device().clock(), termsOf(queue.settings())) {}

Result<std::unique_ptr<Endpoint>> VerbsEndpoint::create(VerbsQueue& queue) {
  auto endpoint = std::make_unique<VerbsEndpoint>(queue);
  TRY(endpoint->start());
  return std::unique_ptr<Endpoint>(std::move(endpoint));
}

// Queue pairs after the first have half its slots: they carry large works only, and memory counts.
Status VerbsEndpoint::start() {
  const uint32_t depth = queue_.laneDepth();
  const uint32_t furtherDepth = std::max((depth + 1) / 2, 2u) - 1;
  for (int i = 0; i < queue_.settings().queuePairs; i++) {
    TRY(auto made, SendQueue::create(queue_, *this, i == 0 ? depth : furtherDepth));
    const LaneAddress& address = made->pair()->address();
    if (i == 0)
      own_ = address;
    else
      own_.pairs.push_back(address.first());
    sendQueues_.push_back(std::move(made));
  }
  if (depth >= kLeastApartDepth) own_.apart = queue_.settings().apart;
  address_ = encode(own_);
  return {};
}

VerbsEndpoint::~VerbsEndpoint() {
  const MustNotFail closing;
  sendQueues_.clear();
  queue_.forget(this);
}

Result<RemoteMemory> VerbsEndpoint::import(std::span<const std::byte> blob) {
  return decodeMemory(blob);
}

size_t VerbsEndpoint::post(std::span<const Work> works) {
  size_t taken = 0;
  while (taken < works.size() && life_.ready()) {
    SendQueue* to = choose(works[taken]);
    if (!to) break;
    int refusal = 0;
    const size_t accepted = to->post(works.subspan(taken, together(works.subspan(taken))), &refusal);
    taken += accepted;
    if (refusal != 0) [[unlikely]]
      rejected(works[taken++], refusal);
    else if (accepted == 0)
      break;
  }
  return taken;
}

// The queue pair for the work: the next one in turn that has room. Null: none has.
SendQueue* VerbsEndpoint::choose(const Work& work) {
  if (sendQueues_.size() == 1 || work.length <= kSmallBytes) return sendQueues_.front().get();
  for (size_t tried = 0; tried < sendQueues_.size(); tried++) {
    turn_ = turn_ + 1 < sendQueues_.size() ? turn_ + 1 : 0;
    if (sendQueues_[turn_]->roomFor(work)) return sendQueues_[turn_].get();
  }
  return nullptr;
}

// The number of works that go over the same queue pair as the first one.
size_t VerbsEndpoint::together(std::span<const Work> works) const {
  if (sendQueues_.size() == 1) return works.size();
  if (works.front().length > kSmallBytes) return 1;
  const auto large =
      std::find_if(works.begin(), works.end(), [](const Work& work) { return work.length > kSmallBytes; });
  return static_cast<size_t>(large - works.begin());
}

// The driver refused the work itself: it counts as taken and as failed.
void VerbsEndpoint::rejected(const Work& work, int code) {
  Completion completion = about(CompletionKind::sent, code);
  completion.context = work.context;
  firstFailure_ = verbsError("posting", queue_.device().info().name, code).message();
  queue_.report(completion, named("posting to", firstFailure_));
  life_.apply(LaneEvent::workFailed, code, firstFailure_);
}

void VerbsEndpoint::lost(int error, const std::string& why) {
  if (firstFailure_.empty()) firstFailure_ = told_.empty() ? why : told_ + "; then " + why;
  if (life_.ready()) life_.apply(LaneEvent::workFailed, error, firstFailure_);
}

std::string VerbsEndpoint::named(const char* what, const std::string& why) const {
  return format("%s %s over verbs %s (%s): %s", what, peerText_.empty() ? "the peer" : peerText_.c_str(),
                queue_.device().info().name.c_str(), addressText(own_).c_str(), why.c_str());
}

// The slow half: connecting, fencing and closing. Nothing below runs while a lane carries data.

// Both ends use as many queue pairs as the end that has fewer.
Status VerbsEndpoint::connect(std::span<const std::byte> peerAddress) {
  TRY(life_.mayConnect());
  TRY(const LaneAddress peer, decodeLaneAddress(peerAddress));
  TRY(const size_t gid, commonGid(own_, peer));
  if (goesByGid(own_, peer, gid)) used_ = own_.gids[gid];
  peerText_ = addressText(peer);
  sendQueues_.resize(std::min(sendQueues_.size(), peer.pairs.size()));
  const TimePoint deadline = queue_.device().clock().now() + queue_.settings().connectTimeout;
  for (size_t i = 0; i < sendQueues_.size(); i++) {
    SendQueue& one = *sendQueues_[i];
    const bool always = own_.apart == Apart::always || peer.apart == Apart::always;
    const bool both = own_.apart != Apart::never && peer.apart != Apart::never;
    if (always || both) one.goApart(always ? 0 : queue_.settings().apartAbove);
    TRY(one.dial(peer.only(i), deadline));
  }
  dialling_ = sendQueues_.size();
  life_.apply(LaneEvent::connect);
  queue_.progress(this);
  const std::string why = whyUnreachable(*queue_.device().address());
  if (!why.empty()) life_.apply(LaneEvent::refused, EADDRNOTAVAIL, why);
  return {};
}

std::string VerbsEndpoint::whyUnreachable(const PortAddress& now) const {
  const Port& port = queue_.device().port();
  std::string why = used_ ? whyGone(*used_, now) : "";
  if (!own_.ethernet && own_.lid != now.lid)
    why = format("its LID changed from %u to %u, as the subnet manager decides", own_.lid, now.lid);
  return why.empty() ? why : format("port %d of %s: %s", port.info.port, port.card.c_str(), why.c_str());
}

void VerbsEndpoint::dialled(int error, const std::string& why) {
  if (life_.state() != LaneState::connecting) return;
  if (error != 0) return void(life_.apply(LaneEvent::refused, error, why));
  if (--dialling_ > 0) return;
  everReady_ = true;
  portDown_ = queue_.device().portDown();
  if (life_.apply(LaneEvent::stands)) tellTrouble();
}

void VerbsEndpoint::portWent(const std::string& down) {
  portDown_ = down;
  tellTrouble();
}

// A LID that changed does not come back, so the lane is over. An address may come back, and the kernel keeps
// the entry of one that is in use: then the card's retries lose nothing.
void VerbsEndpoint::addressRead(const PortAddress& now) {
  const std::string why = whyUnreachable(now);
  if (!own_.ethernet && own_.lid != now.lid) return broke(EADDRNOTAVAIL, why);
  addressGone_ = why;
  tellTrouble();
}

// The protocol hears of a trouble when it begins and when it is over.
void VerbsEndpoint::tellTrouble() {
  const std::string& trouble = portDown_.empty() ? addressGone_ : portDown_;
  if (!life_.ready() || trouble == told_) return;
  told_ = trouble;
  const int error = trouble.empty() ? 0 : portDown_.empty() ? EADDRNOTAVAIL : ENETDOWN;
  report(about(CompletionKind::faltering, error), trouble.empty() ? "" : named("lane to", trouble));
}

// An error that breaks a lane breaks its markers too. A lane that is not connected yet finds the error when
// it connects.
void VerbsEndpoint::broke(int error, const std::string& why) {
  if (life_.state() == LaneState::retiring && fenceBy_ == FenceBy::markers) return startDraining();
  if (life_.state() != LaneState::idle) life_.apply(LaneEvent::broke, error, why);
}

bool VerbsEndpoint::progress(TimePoint now) {
  return life_.progress(now);
}

// Outstanding works come back by themselves, each with the card's own reason, so none is reported here.
size_t VerbsEndpoint::dropOutstanding(LaneState, int, const std::string& why) {
  if (firstFailure_.empty()) firstFailure_ = why;
  return 0;
}

void VerbsEndpoint::retire() {
  life_.apply(LaneEvent::retire);
}

// A lane that works is fenced by a marker: one more write behind everything else. When the marker is
// acknowledged, everything before it has landed. A lane that does not work is cut.
void VerbsEndpoint::startFence(LaneState from) {
  if (firstFailure_.empty()) firstFailure_ = "the lane was retired";
  queue_.progress(this);
  if (from != LaneState::ready) return startDraining();
  bool all = true;
  for (auto& one : sendQueues_) {
    one->postMarker();
    all = all && one->markerOut();
  }
  if (!all) startDraining();
}

// After the last marker the queue pairs are closed, and no stray packets are possible.
void VerbsEndpoint::markerBack(bool acknowledged) {
  if (life_.state() != LaneState::retiring || fenceBy_ != FenceBy::markers) return;
  const bool more =
      std::any_of(sendQueues_.begin(), sendQueues_.end(), [](const auto& one) { return one->markerOut(); });
  if (acknowledged && more) return;
  startDraining();
  if (acknowledged) strayUntil_ = {};
}

// Queue pairs in ERR: outstanding works come back flushed.
void VerbsEndpoint::startDraining() {
  fenceBy_ = FenceBy::draining;
  life_.restartFence();
  strayUntil_ = everReady_ ? queue_.device().clock().now() + kStrayPackets : TimePoint{};
  for (auto& one : sendQueues_) one->pair()->fail();
}

size_t VerbsEndpoint::outstanding() const {
  size_t sum = 0;
  for (const auto& one : sendQueues_) sum += one->outstanding();
  return sum;
}

std::optional<int> VerbsEndpoint::fenced(TimePoint now, bool late) {
  if (fenceBy_ == FenceBy::draining) return drained(now, late) ? std::optional<int>(0) : std::nullopt;
  if (late) startDraining();
  return std::nullopt;
}

// Works that succeeded without an entry of their own stay silent in ERR too, so a marker is sent behind them,
// which comes back flushed. A card that does not even return the marker is given up at the deadline;
// destroying the queue pair ends its access.
bool VerbsEndpoint::drained(TimePoint now, bool late) {
  for (auto& one : sendQueues_)
    if (one->outstanding() > 0 && !one->markerOut()) one->postMarker();
  return (outstanding() == 0 || late) && now >= strayUntil_;
}

void VerbsEndpoint::endFence(bool) {
  for (auto& one : sendQueues_) one->condemnOutstanding();
}

}  // namespace weft::verbs
