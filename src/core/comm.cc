// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/comm.h"

#include <algorithm>
#include <utility>

#include "src/base/log.h"
#include "src/base/reserve.h"
#include "src/core/ending_log.h"
#include "src/core/patience.h"

namespace weft::core {

namespace {

// Between two looks at what closing waits for; an answer that is on its way is here after the first.
constexpr std::chrono::microseconds kFirstPause{1}, kPause{50};

}  // namespace

bool StickyError::put(Error error) {
  std::lock_guard lock(mutex_);
  if (error_) return false;
  error_ = std::make_unique<Error>(std::move(error));
  set_.store(true, std::memory_order_release);
  return true;
}

Error StickyError::get() const {
  std::lock_guard lock(mutex_);
  return error_ ? *error_ : Error(Code::internal, "reading a comm's error", "there is none");
}

// One that failed says so again whatever still arrives.
Tested CommBase::testUnfinished(Request* request) const {
  if (failed()) request->reportedFailed = true;
  return {!request->reportedFailed, false};
}

CommBase::CommBase(CommOptions options, const char* kind) : options_(std::move(options)) {
  number_ = engine().addComm(this);
  peering().comms++;
  const MustNotFail naming;  // the engine knows it already, and would not hear that it was never finished
  if (stats::StatsFile* file = engine().stats())
    stats_ = stats::CommStats(
        file->take(number_, kind[0] == 's', engine().deviceName(), peering().peer()->name()));
  const Checking ours = parseChecking(engine().config().checksum).value_or(Checking::off);
  sums_ = SumRule(agreedChecking(ours, peering().peer()->fingerprint()));
  life_.name(format("%s %u with %s", kind, number_, peering().peer()->name().c_str()));
}

// A comm whose own constructor failed was never closed; its maker is inside the engine.
CommBase::~CommBase() {
  if (stats_.line()) engine().stats()->give(stats_.line(), failed());
  if (number_ != 0) {
    engine().removeComm(number_);
    peering().comms--;
  }
  for (MemoryHandle* handle : handlesInOrder()) std::unique_ptr<MemoryHandle> owned(handle);
}

// As they were registered: their addresses, which the set goes by, differ from run to run, and the peer and
// the fabrics are told of each.
std::vector<MemoryHandle*> CommBase::handlesInOrder() const {
  std::vector<MemoryHandle*> all;
  for (MemoryHandle* handle : handles_) all.push_back(handle);
  std::sort(all.begin(), all.end(), [](const auto* a, const auto* b) { return a->number < b->number; });
  return all;
}

void CommBase::end(const Ending& ending) {
  const MustNotFail nobodyToTell;
  if (!sticky_.put(ending.error)) return;
  stats_.failed(ending.error.message());
  const bool byOwner = ending.by == Ending::By::owner;
  if (ending.by != Ending::By::caller && !byOwner && !closedByPeer())
    engine().waitsFollowFrom(peering().peer()->name());
  const bool closing = life_.apply(Event::failed, ending.error.message()) == Action::none;
  const bool tell = (ending.by == Ending::By::us || byOwner) && !peering().ending();
  if (tell) peering().tell(MessageType::failed, FailedMessage{remoteNumber_, ending.error.message()});
  if (closing) return;
  if (mayBeUnheard(ending)) {
    WEFT_LOG(info, "comm %u ended: %s", number_, ending.error.message().c_str());
  } else if (ending.by == Ending::By::peer) {
    logEnding(peering().peer(), 1, ending, engine().now());
  } else {
    WEFT_LOG(warn, "comm %u ended: %s", number_, ending.error.message().c_str());
  }
}

// The error's text, which the other end gets as its detail, begins with kOwnerSays.
void CommBase::endForOwner(const std::string& why) {
  const MustNotFail telling;
  EngineEntry in(engine(), EngineEntry::wait);
  const std::string_view says = kOwnerSays;
  end({Ending::By::owner, Error(Code::remote, std::string(says.substr(0, says.size() - 2)), why)});
}

bool CommBase::isLeftByPeer() {
  EngineEntry in(engine(), EngineEntry::wait);
  return closedByPeer();
}

// Endings that deserve no warning of their own: the peer's goodbye to receives that only stood by; the
// peering's, which was told once for all comms; NCCL's own doing; and lanes that break because the peer has
// closed. A call that fails because the peer has closed does get its warning: NCCL has nothing else to say
// why.
bool CommBase::mayBeUnheard(const Ending& ending) const {
  if (ending.by == Ending::By::peer && closedByPeer() && mayIdle_.load(std::memory_order_relaxed))
    return true;
  return peering().ending() || ending.by == Ending::By::caller || ending.by == Ending::By::owner ||
         (closedByPeer() && ending.by == Ending::By::us);
}

// Data calls:

void CommBase::sumNothing() {
  EngineEntry in(engine(), EngineEntry::wait);
  sums_ = SumRule(Checking::off);
}

bool CommBase::canSum(const MemoryHandle* memory) {
  static std::atomic<bool> said{false};
  if (!memory || memory->host) return true;
  if (!said.exchange(true))
    WEFT_LOG(info,
             "WEFT_CHECKSUM: messages from and to GPU memory are not checked; those of host memory are");
  return false;
}

MessageEvent CommBase::eventOf(const Request& request, size_t part, size_t bytes) const {
  return {send_ != nullptr, options_.device, request.tags[part], bytes, request.sequence[part]};
}

void CommBase::beginProfiled(Request* request, size_t part, void* profilerHandle, size_t bytes) {
  const auto& profiler = options_.context->options().profiler;
  void* event = profiler ? profiler->begin(profilerHandle, eventOf(*request, part, bytes)) : nullptr;
  request->events[part] = event;
  if (event) {
    declines_ = 0;
  } else if (declines_ < kDeclines) {
    declines_++;
  } else {
    untilAsked_ = kBetweenQuestions - 1;
  }
}

void CommBase::endProfiled(Request* request, size_t part, size_t bytes) {
  options_.context->options().profiler->end(request->events[part], eventOf(*request, part, bytes));
  request->events[part] = nullptr;
}

// Memory:

Result<MemoryHandle*> CommBase::addHandle(MemoryDesc desc, PeerAccess peers) {
  if (failed()) return stickyError();
  desc.peers = peers;
  TRY(auto region, engine().regions().get(desc));  // outside the engine: pinning can take long
  auto handle = std::make_unique<MemoryHandle>(std::move(region), this);
  EngineEntry in(engine(), EngineEntry::wait);
  handles_.makeRoom();  // nothing fails once the peer was told
  if (asRecv()) handle->announcement = peering().memory().announce(handle->region);
  handle->number = ++handlesMade_;
  handles_.insert(handle.get());
  return handle.release();
}

// Its fabrics give the memory back outside the engine, as they took it: unpinning can take long, too.
Status CommBase::removeHandle(MemoryHandle* handle) {
  const MustNotFail closing;
  std::unique_ptr<MemoryHandle> removed;
  {
    EngineEntry in(engine(), EngineEntry::wait);
    if (!handles_.contains(handle))
      return Error(Code::invalidArgument, "deregistering memory", "this handle is not one of this comm's");
    if ((handle->inUse == 0 && !handle->mayBePlacedIn()) || isClosed()) {
      removed = takeHandle(handle);
      return {};
    }
  }
  stopUsing(handle);
  EngineEntry in(engine(), EngineEntry::wait);
  removed = takeHandle(handle);
  return {};
}

std::unique_ptr<MemoryHandle> CommBase::takeHandle(MemoryHandle* handle) {
  if (handle->announcement) peering().memory().withdraw(handle->announcement);
  handles_.erase(handle);
  return std::unique_ptr<MemoryHandle>(handle);
}

// For whom counting is no matter of the data path: the engine's counters and the lanes as they stand.
void CommBase::publish() {
  stats::CommLine* line = stats_.line();
  if (!line) return;
  stats_.refresh();
  const EngineCounters& counters = engine().counters();
  line->lanes.set(static_cast<uint32_t>(peering().lanes().tried()));
  line->lanesUp.set(static_cast<uint32_t>(peering().lanes().up()));
  line->registrations.set(handlesMade_);
  line->mayIdle.set(mayIdle_.load(std::memory_order_relaxed) ? 1 : 0);
  line->segmentsAgain.set(counters.segmentsAgain);
  line->bytesAgain.set(counters.bytesAgain);
  line->lanesLeft.set(counters.lanesLeft);
  line->lanesRevived.set(counters.lanesRevived);
  const auto state = [&] {
    const control::Peer& peer = *peering().peer();
    if (!peer.alive()) return stats::PeerState::gone;
    return peer.answers() ? stats::PeerState::answers : stats::PeerState::silent;
  };
  line->remote.set(remoteNumber_);
  line->peerState.set(static_cast<uint32_t>(state()));
}

// Closing:

void CommBase::otherIs(OtherEnd to) {
  if (to > other_) other_ = to;
}

void CommBase::onPeerClosed(std::optional<uint64_t>) {
  otherIs(OtherEnd::closed);
  life_.apply(Event::otherClosed);
}

void CommBase::keepMemory(std::shared_ptr<const void> memory) {
  EngineEntry in(engine(), EngineEntry::wait);
  kept_.push_back(std::move(memory));
}

// The engine cannot be kept by what it owns. The profiler goes with the context, so it hears of the ends now.
CommOptions CommBase::detach() {
  CommOptions held = options_;
  engine().eachRequestOf(this, [&](Request& request) {
    for (size_t part = 0; part < request.count; part++) endEvent(&request, part, send_ ? request.bytes : 0);
  });
  options_.runtime.reset();
  options_.context.reset();
  options_.engine = std::shared_ptr<Engine>(std::shared_ptr<void>(), held.engine.get());
  return held;
}

void CommBase::close() {
  const Clock& clock = engine().clock();
  for (bool first = true;; first = false) {
    {
      EngineEntry in(engine(), EngineEntry::wait);
      if (isClosed()) return;  // before this call, or by another thread's pass
      engine().progress();
      if (first) engine().close(this);
      if (isClosed()) return;
    }
    clock.sleep(first ? kFirstPause : kPause);
  }
}

void CommBase::beginClosing() {
  life_.apply(Event::close);
  patience_.emplace(engine().clock(), engine().config().closeTimeout);
}

// Each stage ends by what it waits for, or by a deadline; the actions that follow from one lead to the next.
void CommBase::stepClosing() {
  while (!isClosed()) {
    const auto event = life_.is(Stage::cutting) ? when(cuttingOver(), Event::settled) : closingEvent();
    if (!event) return;
    act(life_.apply(*event));
  }
}

// A peer that has let another close wait in vain is not waited for.
bool CommBase::closingLate() {
  const TimePoint now = engine().clock().now();
  if (peering().unresponsive(now)) return true;
  if (!patience_->isOver()) return false;
  peering().gaveNoAnswer(now);
  return true;
}

// The lanes have deadlines of their own, and say how it ended.
bool CommBase::cuttingOver() {
  if (peering().lanes().isFenced()) return true;
  if (!patience_->isOver()) return false;
  WEFT_LOG(warn, "closing: a lane to %s did not confirm that it is fenced", peering().peer()->name().c_str());
  return true;
}

void CommBase::act(Action action) {
  if (action == Action::none || action == Action::end) return;
  patience_.emplace(engine().clock(), action == Action::cut ? cuttingTime() : engine().config().closeTimeout);
  if (action == Action::ask) return askOther();
  if (action == Action::sayClosed) return sayClosed();
  peering().cut();
  const TimePoint since = peering().lanes().fencingSince();
  if (engine().clock().now() - since > cuttingTime()) act(life_.apply(Event::settled));  // waited for before
}

Nanoseconds CommBase::cuttingTime() const {
  return engine().config().closeTimeout * 5 / 4;
}

void CommBase::letGoOfAll() {
  letGo();
  publish();  // for the last time, as the comm may be freed outside of the engine
  leaveRing();
  for (MemoryHandle* handle : handlesInOrder()) {
    if (handle->announcement) peering().memory().withdraw(handle->announcement);
    handle->announcement = nullptr;
  }
}

// The peer hears of the engine's end, which says all.
void CommBase::abandon() {
  if (number_ == 0) return;
  letGoOfAll();
  engine().removeComm(std::exchange(number_, 0));
  peering().comms--;
}

// Also to a peer that was too slow for us: without this word it would wait for what was lost for ever.
void CommBase::sayClosed() {
  letGoOfAll();
  if (!peering().remoteGone() && !closedByPeer())
    peering().tell(MessageType::closed, CommMessage{remoteNumber_, total()});
  engine().removeComm(std::exchange(number_, 0));  // and its requests that were never tested to the end
  peering().comms--;
}

// Deregistering waits as closing does:

bool CommBase::waitFor(const std::function<bool()>& done) {
  const Clock& clock = engine().clock();
  Patience patience(clock, engine().config().closeTimeout);
  for (bool first = true;; first = false) {
    {
      EngineEntry in(engine(), EngineEntry::wait);
      if (done()) return true;
      engine().progress();
      if (done()) return true;
      if (peering().unresponsive(clock.now())) return false;
      if (patience.isOver()) {
        peering().gaveNoAnswer(clock.now());
        return false;
      }
    }
    clock.sleep(first ? kFirstPause : kPause);
  }
}

void CommBase::fence() {
  const Clock& clock = engine().clock();
  {
    EngineEntry in(engine(), EngineEntry::wait);
    peering().cut();
    if (clock.now() - peering().lanes().fencingSince() > cuttingTime()) return;
  }
  Patience patience(clock, cuttingTime());
  while (!patience.isOver()) {
    {
      EngineEntry in(engine(), EngineEntry::wait);
      engine().progress();
      if (peering().lanes().isFenced()) return;
    }
    clock.sleep(kPause);
  }
  WEFT_LOG(warn, "closing: a lane to %s did not confirm that it is fenced", peering().peer()->name().c_str());
}

}  // namespace weft::core
