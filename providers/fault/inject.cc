// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <algorithm>
#include <cerrno>
#include <limits>

#include "providers/fault/endpoint.h"
#include "providers/fault/queue.h"

// The effect of rules on posted works and on lanes: the half of FaultQueue that breaks things.
namespace weft::fault {

namespace {

constexpr uint32_t kDoomPolls = 8;  // how long a lane that is to die late waits for its window to fill

FaultOp opOf(const Work& work) {
  switch (work.op) {
    case Opcode::write:
      return FaultOp::write;
    case Opcode::writeNotify:
    case Opcode::message:
      return FaultOp::writeNotify;
    default:
      return FaultOp::read;
  }
}

bool looksAt(const FaultRule& rule, FaultOp op) {
  const bool posted = op == FaultOp::write || op == FaultOp::writeNotify || op == FaultOp::read;
  return rule.op == op || (rule.op == FaultOp::any && posted);
}

}  // namespace

// Counts the operation with every rule that looks at it; the first one it fulfils wins.
RuleState* FaultQueue::decide(FaultOp op, const Where& where, size_t length, const Work* work) {
  counted_.clear();
  RuleState* hit = nullptr;
  for (const auto& state : rules_) {
    const FaultRule& rule = state->rule;
    if (!looksAt(rule, op) || length < rule.minBytes) continue;
    if (rule.lane >= 0 && where.lane >= 0 && rule.lane != where.lane) continue;
    if (work && !applies(rule, *work)) continue;
    counted_.push_back(state.get());
    if (state->next() && !hit) hit = state.get();
  }
  return hit;
}

// To complete early is a lie where delivery was promised.
bool FaultQueue::applies(const FaultRule& rule, const Work& work) const {
  // A stream carries each message once, and the core counts on it.
  if (rule.kind == FaultKind::duplicate && work.op == Opcode::message) return false;
  if (rule.kind != FaultKind::early) return true;
  const Delivery delivery = device_.info().delivery;
  if (work.op == Opcode::read || delivery == Delivery::always) return false;
  return delivery == Delivery::accepted || !work.delivered;
}

void FaultQueue::record(RuleState& hit, size_t works, uint64_t bytes) {
  hit.record(works, bytes);
}

void FaultQueue::undo() {
  for (RuleState* state : counted_) state->undo();
}

bool FaultQueue::submit(FaultEndpoint& lane, const Work& work) {
  LaneFaults& faults = lane.faults();
  if (faults.refusals > 0) {
    faults.refusals--;
    return false;
  }
  if (ledger_.unfinished() + readySent_ >= depths_.sends) return false;
  if (faults.dead) {
    complete({.kind = CompletionKind::sent,
              .ok = false,
              .error = ECANCELED,
              .context = work.context,
              .source = &lane});
    return true;
  }
  if (faults.silent || faults.doomed > 0) {
    park(lane, work);
    return true;
  }
  RuleState* hit = rules_.empty() ? nullptr : decide(opOf(work), lane.where(), work.length, &work);
  if (hit) {
    record(*hit, ledger_.unfinished() + 1, ledger_.bytes() + work.length);
    return inject(lane, work, *hit);
  }
  if (forward(lane, work)) return true;
  undo();
  return false;
}

bool FaultQueue::forward(FaultEndpoint& lane, const Work& work) {
  const uint32_t index = ledger_.add(lane, work);
  if (!postHeld(index)) {
    ledger_.remove(index);
    return false;
  }
  if (!held_.empty()) overtake(lane);
  return true;
}

void FaultQueue::overtake(const FaultEndpoint& lane) {
  for (const uint32_t index : held_) {
    Entry& entry = ledger_.at(index);
    if (entry.lane == &lane && entry.overtakers > 0 && --entry.overtakers == 0) entry.polls = 0;
  }
}

// False: the work was not taken.
bool FaultQueue::inject(FaultEndpoint& lane, const Work& work, RuleState& hit) {
  const FaultRule& rule = hit.rule;
  Completion sent{.kind = CompletionKind::sent, .context = work.context, .source = &lane};
  switch (rule.kind) {
    case FaultKind::refuse:
      lane.faults().refusals = rule.times - 1;
      return false;
    case FaultKind::drop:
      if (!work.unsignaled) complete(sent);
      return true;
    case FaultKind::error:
      sent.ok = false;
      sent.error = EIO;
      complete(sent);
      return true;
    case FaultKind::duplicate:
      duplicate(lane, work, rule.pollsOf());
      return true;
    case FaultKind::corrupt:
      corrupt(lane, work);
      return true;
    case FaultKind::early:
      if (!early(lane, work, rule.pollsOf())) hold(lane, work, rule);
      return true;
    case FaultKind::kill:
    case FaultKind::killLate:
      doom(lane, rule);
      park(lane, work);
      return true;
    case FaultKind::killSilent:
      lane.faults().silent = true;
      park(lane, work);
      return true;
    default:
      hold(lane, work, rule);
      return true;
  }
}

// delay, reorder, hold and errorLanded: forwarded later, or in this very post.
void FaultQueue::hold(FaultEndpoint& lane, const Work& work, const FaultRule& rule) {
  const uint32_t index = ledger_.add(lane, work);
  Entry& entry = ledger_.at(index);
  entry.polls = rule.kind == FaultKind::errorLanded ? 0 : rule.pollsOf();
  entry.fail = rule.kind == FaultKind::errorLanded;
  if (rule.kind == FaultKind::reorder) entry.overtakers = rule.window;
  if (rule.kind == FaultKind::hold && lane.peerIsLocal()) {
    entry.peerPolls = lane.peerPolls() + std::max(entry.polls, 1u);
    entry.polls = std::numeric_limits<uint32_t>::max();
  }
  held_.push_back(index);
}

void FaultQueue::duplicate(FaultEndpoint& lane, const Work& work, uint32_t polls) {
  const uint32_t first = ledger_.add(lane, work);
  const uint32_t second = ledger_.add(lane, work);
  Entry& copy = ledger_.at(second);
  copy.owed = false;
  if (polls > 0 && work.op != Opcode::read) copy.copy = stage(device_.inner(), work);
  if (copy.copy) {
    copy.polls = polls;
    copy.work.local = copy.copy->bytes.data();
    copy.work.memory = copy.copy->memory.get();
  } else {  // both from the user's buffer, which is his again when both ended
    copy.partner = first;
    ledger_.at(first).partner = second;
  }
  held_.push_back(first);
  held_.push_back(second);
}

bool FaultQueue::early(FaultEndpoint& lane, const Work& work, uint32_t polls) {
  auto copy = stage(device_.inner(), work);
  if (!copy) return false;
  const uint32_t index = ledger_.add(lane, work);
  Entry& entry = ledger_.at(index);
  entry.work.local = copy->bytes.data();
  entry.work.memory = copy->memory.get();
  entry.copy = std::move(copy);
  entry.polls = polls;
  if (!work.unsignaled) tell(index, 0);
  entry.owed = false;
  held_.push_back(index);
  return true;
}

void FaultQueue::corrupt(FaultEndpoint& lane, const Work& work) {
  auto copy = stage(device_.inner(), work);
  const uint32_t index = ledger_.add(lane, work);
  Entry& entry = ledger_.at(index);
  held_.push_back(index);
  if (!copy || copy->bytes.empty()) return;
  const size_t length = copy->bytes.size();
  const size_t back = length > 4096 ? 1 + corrupted_++ * 4099 % (length / 2) : 1;
  copy->bytes[length - back] ^= std::byte{16};
  entry.work.local = copy->bytes.data();
  entry.work.memory = copy->memory.get();
  entry.copy = std::move(copy);
}

void FaultQueue::doom(FaultEndpoint& lane, const FaultRule& rule) {
  LaneFaults& faults = lane.faults();
  faults.late = rule.kind == FaultKind::killLate;
  faults.doomed = rule.window;
  faults.doomPolls = faults.late ? kDoomPolls : std::max(rule.pollsOf(), 1u);
  faults.latePolls = rule.pollsOf();
}

// A work of a lane that is dying or silently dead: it goes nowhere for now.
void FaultQueue::park(FaultEndpoint& lane, const Work& work) {
  ledger_.at(ledger_.add(lane, work)).parked = true;
  LaneFaults& faults = lane.faults();
  if (faults.doomed > 0 && --faults.doomed == 0) kill(lane);
}

void FaultQueue::kill(FaultEndpoint& lane) {
  LaneFaults& faults = lane.faults();
  faults.dead = true;
  faults.doomed = 0;
  ledger_.forEach(lane, [&](uint32_t index) {
    Entry& entry = ledger_.at(index);
    if (entry.inner == Entry::Inner::posted)
      entry.fail = true;
    else
      killHeld(lane, index);
  });
  complete({.kind = CompletionKind::broken, .ok = false, .error = ENETDOWN, .source = &lane});
  if (!faults.late) lane.retireInner();
}

// Fails a work that did not leave yet. On a lane that dies late its copy still will.
void FaultQueue::killHeld(FaultEndpoint& lane, uint32_t index) {
  tell(index, ENETDOWN);
  Entry& entry = ledger_.at(index);
  const bool mayLand = lane.faults().late && entry.work.op != Opcode::read && entry.parked;
  std::unique_ptr<Staged> copy = mayLand ? stage(device_.inner(), entry.work) : nullptr;
  if (!copy) return release(index);
  entry.work.local = copy->bytes.data();
  entry.work.memory = copy->memory.get();
  entry.copy = std::move(copy);
  entry.parked = false;
  entry.polls = lane.faults().latePolls;
  held_.push_back(index);
}

// Rules on `poll`: the port goes down under every lane at once.
void FaultQueue::killIdle() {
  RuleState* hit = rules_.empty() ? nullptr : decide(FaultOp::poll, device_.where(), 0, nullptr);
  if (!hit) return;
  record(*hit, ledger_.unfinished(), ledger_.bytes());
  for (FaultEndpoint* lane : lanes_) {
    LaneFaults& faults = lane->faults();
    if (faults.dead || faults.retiring) continue;
    faults.late = hit->rule.kind == FaultKind::killLate;
    if (hit->rule.kind == FaultKind::killSilent)
      faults.silent = true;
    else
      kill(*lane);
  }
}

}  // namespace weft::fault
