// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/common/lane_life.h"

#include <cerrno>

#include "providers/common/rare_events.h"
#include "src/base/log.h"

// The table's events at work. Names are for the log alone.
namespace weft {

namespace {

constexpr auto kNext = nextLaneStates();

constexpr const char* kStateNames[kLaneStates] = {"idle", "connecting", "ready",
                                                  "dead", "retiring",   "retired"};
constexpr const char* kEventNames[kLaneEvents] = {"connect", "stands", "refused",  "broke", "workFailed",
                                                  "retire",  "fenced", "deadline", "cut"};

}  // namespace

const char* nameOf(LaneState state) {
  return kStateNames[static_cast<size_t>(state)];
}

const char* nameOf(LaneEvent event) {
  return kEventNames[static_cast<size_t>(event)];
}

Status LaneLife::mayConnect() const {
  if (state_ == LaneState::idle) return {};
  return Error(Code::internal, "connecting a lane", "the lane was connected before");
}

bool LaneLife::apply(LaneEvent event, int error, const std::string& why) {
  const LaneState from = state_;
  const LaneState to = kNext[static_cast<size_t>(from)][static_cast<size_t>(event)];
  if (to == from) return false;
  // The seam owes a `connected` before `retired`, so a lane that still connects is refused first.
  if (from == LaneState::connecting && to == LaneState::retiring)
    return apply(LaneEvent::refused, ECANCELED, "the lane was retired while it connected") && apply(event);
  enter(to, event, why);
  switch (to) {
    case LaneState::connecting:
      deadline_ = clock_.now() + terms_.connect;
      break;
    case LaneState::ready:
      tell(CompletionKind::connected, 0, "", {});
      break;
    case LaneState::dead:
      die(from, event, error, why);
      break;
    case LaneState::retiring:
      restartFence();
      host_.startFence(from);
      break;
    case LaneState::retired:
      retired(event == LaneEvent::fenced, error);
      break;
    case LaneState::idle:
      break;
  }
  return true;
}

void LaneLife::enter(LaneState to, LaneEvent event, const std::string& why) {
  if (logEnabled(LogLevel::trace)) {
    const std::string change = format("%s -> %s (%s%s%s)", nameOf(state_), nameOf(to), nameOf(event),
                                      why.empty() ? "" : ": ", why.c_str());
    WEFT_LOG(trace, "%s", host_.named("lane to", change).c_str());
  }
  state_ = to;
}

// A lane that was ready reports `broken` only where no work tells of its end.
void LaneLife::die(LaneState from, LaneEvent event, int error, const std::string& why) {
  const size_t failed = host_.dropOutstanding(from, error, why);
  if (from != LaneState::ready) return tell(CompletionKind::connected, error, "connecting to", why);
  if (event == LaneEvent::broke && failed == 0) tell(CompletionKind::broken, error, "lane to", why);
}

void LaneLife::retired(bool passed, int error) {
  host_.endFence(passed);
  tell(CompletionKind::retired, passed ? 0 : error, "retiring the lane to", terms_.notFenced);
}

void LaneLife::tell(CompletionKind kind, int error, const char* what, const std::string& why) {
  const Completion completion = completionOf(&host_.endpoint(), kind, error);
  host_.report(completion, completion.ok ? std::string() : host_.named(what, why));
}

bool LaneLife::progress(TimePoint now) {
  const bool late = now >= deadline_;
  if (state_ == LaneState::connecting && late) apply(LaneEvent::deadline, ETIMEDOUT, terms_.noAnswer);
  if (state_ == LaneState::retiring) {
    if (const auto outcome = host_.fenced(now, late))
      apply(*outcome == 0 ? LaneEvent::fenced : LaneEvent::deadline, *outcome);
  }
  return state_ == LaneState::connecting || state_ == LaneState::retiring;
}

}  // namespace weft
