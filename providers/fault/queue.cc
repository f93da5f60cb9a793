// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/fault/queue.h"

#include <algorithm>
#include <cerrno>

#include "providers/fault/endpoint.h"
#include "src/base/log.h"

namespace weft::fault {

namespace {

constexpr size_t kBatch = 64;  // completions taken from the inner Queue at a time

Completion sentBy(const Work& work, FaultEndpoint* lane, int error) {
  return {.kind = CompletionKind::sent,
          .ok = error == 0,
          .error = error,
          .context = work.context,
          .source = lane};
}

}  // namespace

FaultQueue::FaultQueue(FaultDevice& device, std::unique_ptr<Queue> inner)
    : device_(device),
      inner_(std::move(inner)),
      depths_(inner_->depths()),
      polls_(std::make_shared<std::atomic<uint64_t>>(0)),
      ledger_(depths_.sends),
      scratch_(kBatch) {
  ready_.reserve(depths_.sends + kBatch);
  failures_.reserve(kBatch);
}

Result<std::unique_ptr<Endpoint>> FaultQueue::openEndpoint() {
  Where where = device_.where();
  where.lane = shared().lanes.fetch_add(1, std::memory_order_relaxed);
  TRY(shared().call(FaultKind::openEndpoint, where, "opening a lane"));
  TRY(auto inner, inner_->openEndpoint());
  auto lane = std::make_unique<FaultEndpoint>(*this, std::move(inner), std::move(where));
  lanes_.push_back(lane.get());
  return std::unique_ptr<Endpoint>(std::move(lane));
}

void FaultQueue::placeBy(Placer* placer) {
  placer_ = placer;
  inner_->placeBy(placer ? this : nullptr);
}

Place FaultQueue::place(Endpoint& at, const MessageLabel& label, uint64_t length, bool mayWait) {
  FaultEndpoint* lane = laneOf(&at);
  if (!lane) return {};  // destroyed meanwhile
  return placer_->place(*lane, label, length, mayWait);
}

size_t FaultQueue::poll(std::span<Completion> out) {
  refresh();
  polls_->fetch_add(1, std::memory_order_relaxed);
  failures_.clear();
  tick();
  killIdle();
  pump();
  size_t n = emit(out);
  size_t asked = 0, got = 0;
  do {
    asked = std::min(out.size() - n, scratch_.size());
    got = inner_->poll(std::span(scratch_.data(), asked));
    for (size_t i = 0; i < got; i++) translate(scratch_[i]);
    n += emit(out.subspan(n));
  } while (got > 0 && got == asked);
  return n;
}

void FaultQueue::refresh() {
  const uint64_t version = shared().control->version();
  if (version == rulesVersion_) return;
  rulesVersion_ = version;
  rules_ = shared().control->rules();
  std::erase_if(rules_, [&](const auto& state) {
    return state->rule.op == FaultOp::call || !fits(state->rule, device_.where());
  });
  counted_.reserve(rules_.size());
}

// A poll has passed for everything held back.
void FaultQueue::tick() {
  for (const uint32_t index : held_) {
    Entry& entry = ledger_.at(index);
    if (entry.polls > 0 && entry.peerPolls == 0) entry.polls--;
  }
  for (Delayed& delayed : delayed_) {
    if (delayed.polls > 0) delayed.polls--;
    if (delayed.polls == 0) complete(delayed.completion);
  }
  std::erase_if(delayed_, [](const Delayed& delayed) { return delayed.polls == 0; });
  for (FaultEndpoint* lane : lanes_) {
    LaneFaults& faults = lane->faults();
    if (faults.doomed > 0 && --faults.doomPolls == 0) kill(*lane);
  }
}

bool FaultQueue::due(Entry& entry) const {
  return entry.polls == 0 || (entry.peerPolls && entry.lane->peerPolls() >= entry.peerPolls);
}

void FaultQueue::pump() {
  if (held_.empty()) return;
  size_t kept = 0;
  for (const uint32_t index : held_) {
    if (!due(ledger_.at(index)) || !postHeld(index)) held_[kept++] = index;
  }
  held_.resize(kept);
}

bool FaultQueue::postHeld(uint32_t index) {
  Entry& entry = ledger_.at(index);
  Work work = entry.work;
  work.unsignaled = false;  // its end is how we know when a copy can go, and what to tell
  work.context = ledger_.contextOf(index);
  if (entry.lane->inner()->post({&work, 1}) == 0) return false;
  entry.inner = Entry::Inner::posted;
  return true;
}

void FaultQueue::translate(Completion completion) {
  if (completion.kind == CompletionKind::sent) {
    if (const uint32_t index = ledger_.find(completion.context)) innerEnded(index, completion);
    return;
  }
  FaultEndpoint* lane = completion.source ? laneOf(completion.source) : nullptr;
  if (completion.source && !lane) return;  // destroyed meanwhile
  const Completion inner = completion;
  completion.source = lane;
  if (completion.kind == CompletionKind::notified) return translateNotified(completion);
  if (!lane) return;
  if (completion.kind == CompletionKind::retired) return translateRetired(*lane, inner);
  if (completion.kind == CompletionKind::broken && lane->faults().dead) return;
  complete(completion);
  if (!completion.ok) failures_.emplace_back(completion, inner);
}

void FaultQueue::translateNotified(const Completion& completion) {
  const auto* lane = static_cast<const FaultEndpoint*>(completion.source);
  RuleState* hit =
      decide(FaultOp::notified, lane ? lane->where() : device_.where(), completion.length, nullptr);
  if (!hit) return complete(completion);
  record(*hit, 1, completion.length);
  if (hit->rule.kind == FaultKind::drop) return;
  if (hit->rule.kind == FaultKind::duplicate) complete(completion);
  const uint32_t polls = hit->rule.pollsOf();
  if (polls == 0) return complete(completion);
  delayed_.push_back({completion, polls});
}

// It may have failed, and come once more when the lane was cut after that.
void FaultQueue::translateRetired(FaultEndpoint& lane, const Completion& inner) {
  LaneFaults& faults = lane.faults();
  faults.innerRetired = true;
  faults.fenceError = inner.ok ? 0 : inner.error;
  faults.fenceWhy = inner.ok ? std::string() : inner_->explain(inner);
  tellAll(lane);
  if (faults.retiring) tellRetired(lane);
}

void FaultQueue::tellRetired(FaultEndpoint& lane) {
  const int error = lane.faults().fenceError;
  complete({.kind = CompletionKind::retired, .ok = error == 0, .error = error, .source = &lane});
}

// The inner Queue is through with a work; a pair waits for its other half.
void FaultQueue::innerEnded(uint32_t index, const Completion& inner) {
  Entry& entry = ledger_.at(index);
  entry.inner = Entry::Inner::ended;
  if (!entry.partner) return settle(index, inner);
  entry.fail |= !inner.ok;
  const uint32_t other = entry.partner;
  if (ledger_.at(other).inner != Entry::Inner::ended) return;
  const uint32_t owner = entry.owed ? index : other;
  const uint32_t copy = entry.owed ? other : index;
  ledger_.at(owner).fail |= ledger_.at(copy).fail;
  ledger_.remove(copy);
  settle(owner, inner);
}

void FaultQueue::settle(uint32_t index, const Completion& inner) {
  Entry& entry = ledger_.at(index);
  const int error = !inner.ok ? inner.error : entry.fail ? EIO : 0;
  const bool failed = !inner.ok || entry.fail;
  if (!entry.owed || (!failed && entry.work.unsignaled)) return ledger_.remove(index);
  Completion completion = sentBy(entry.work, entry.lane, error);
  completion.ok = !failed;
  if (!failed && swallow(index, completion)) return;
  complete(completion);
  if (!inner.ok) failures_.emplace_back(completion, inner);
  ledger_.remove(index);
}

// Rules on `sent`. True: the user does not hear of it now.
bool FaultQueue::swallow(uint32_t index, Completion& completion) {
  Entry& entry = ledger_.at(index);
  RuleState* hit = decide(FaultOp::sent, entry.lane->where(), entry.work.length, nullptr);
  if (!hit) return false;
  record(*hit, ledger_.unfinished(), ledger_.bytes());
  if (hit->rule.kind == FaultKind::drop) {
    entry.lost = true;
    return true;
  }
  if (hit->rule.kind == FaultKind::error) {
    completion.ok = false;
    completion.error = EIO;
    return false;
  }
  delayed_.push_back({completion, std::max(hit->rule.pollsOf(), 1u)});
  ledger_.remove(index);
  return true;
}

void FaultQueue::tell(uint32_t index, int error) {
  Entry& entry = ledger_.at(index);
  if (!entry.owed) return;
  entry.owed = false;
  complete(sentBy(entry.work, entry.lane, error));
}

void FaultQueue::release(uint32_t index) {
  std::erase(held_, index);
  ledger_.remove(index);
}

// Nothing more comes from below: what is still owed has failed.
void FaultQueue::tellAll(FaultEndpoint& lane) {
  ledger_.forEach(lane, [&](uint32_t index) {
    tell(index, ECANCELED);
    release(index);
  });
}

// retire: what is held back never lands, what was delayed or lost is reported, the rest is the inner lane's.
void FaultQueue::fence(FaultEndpoint& lane) {
  lane.faults().doomed = 0;
  ledger_.forEach(lane, [&](uint32_t index) {
    if (ledger_.at(index).inner == Entry::Inner::posted) return;
    tell(index, ECANCELED);
    release(index);
  });
  const auto late = [&](const Delayed& delayed) {
    return delayed.completion.source == &lane && delayed.completion.kind == CompletionKind::sent;
  };
  for (const Delayed& delayed : delayed_)
    if (late(delayed)) complete(delayed.completion);
  std::erase_if(delayed_, late);
  if (lane.faults().innerRetired) return tellRetired(lane);
  lane.retireInner();
}

void FaultQueue::detach(FaultEndpoint& lane) {
  ledger_.forEach(lane, [&](uint32_t index) { release(index); });
  std::erase(lanes_, &lane);
  std::erase_if(delayed_, [&](const Delayed& delayed) { return delayed.completion.source == &lane; });
  ready_.erase(ready_.begin(), ready_.begin() + static_cast<ptrdiff_t>(readyFront_));
  readyFront_ = 0;
  std::erase_if(ready_, [&](const Completion& completion) { return completion.source == &lane; });
  readySent_ =
      static_cast<size_t>(std::count_if(ready_.begin(), ready_.end(), [](const Completion& completion) {
        return completion.kind == CompletionKind::sent;
      }));
}

FaultEndpoint* FaultQueue::laneOf(const Endpoint* inner) const {
  for (FaultEndpoint* lane : lanes_)
    if (lane->inner() == inner) return lane;
  return nullptr;
}

void FaultQueue::complete(const Completion& completion) {
  readySent_ += completion.kind == CompletionKind::sent;
  ready_.push_back(completion);
}

size_t FaultQueue::emit(std::span<Completion> out) {
  size_t n = 0;
  while (n < out.size() && readyFront_ < ready_.size()) {
    out[n] = ready_[readyFront_++];
    readySent_ -= out[n++].kind == CompletionKind::sent;
  }
  if (readyFront_ == ready_.size() || readyFront_ * 2 > ready_.capacity()) {
    ready_.erase(ready_.begin(), ready_.begin() + static_cast<ptrdiff_t>(readyFront_));
    readyFront_ = 0;
  }
  return n;
}

std::string FaultQueue::explain(const Completion& completion) const {
  for (FaultEndpoint* lane : lanes_)
    if (lane == completion.source && completion.kind == CompletionKind::retired)
      return lane->faults().fenceWhy;
  for (const auto& [reported, inner] : failures_) {
    if (reported.kind == completion.kind && reported.source == completion.source &&
        reported.context == completion.context)
      return inner_->explain(inner);
  }
  return format("%s: failed by the fault injector", device_.info().name.c_str());
}

}  // namespace weft::fault
