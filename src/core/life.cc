// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/life.h"

#include <iterator>

#include "src/base/log.h"

namespace weft::core {

namespace {

constexpr size_t kStages = static_cast<size_t>(Stage::over) + 1;
constexpr size_t kEvents = static_cast<size_t>(Event::fenced) + 1;

constexpr const char* kStageNames[] = {"opening", "joining",  "open", "paused",  "stopped", "left",
                                       "ended",   "draining", "told", "cutting", "over"};
constexpr const char* kEventNames[] = {"half-here",    "joined",     "lanes-up", "lanes-down", "withdrawn",
                                       "other-closed", "peer-left",  "failed",   "close",      "drained",
                                       "settled",      "unanswered", "late",     "cut",        "fenced"};
static_assert(std::size(kStageNames) == kStages && std::size(kEventNames) == kEvents);

// A stage and an event lead to one thing.
constexpr bool unambiguous() {
  for (size_t i = 0; i < std::size(kLives); i++) {
    for (size_t j = 0; j < i; j++)
      if (kLives[i].from == kLives[j].from && kLives[i].event == kLives[j].event) return false;
  }
  return true;
}
static_assert(unambiguous());

}  // namespace

const char* nameOf(Stage stage) {
  return kStageNames[static_cast<size_t>(stage)];
}

const char* nameOf(Event event) {
  return kEventNames[static_cast<size_t>(event)];
}

Action Life::apply(Event event, std::string_view why) {
  for (const Change& change : kLives) {
    if (change.from != stage_ || change.event != event) continue;
    stage_ = change.to;
    WEFT_LOG(trace, "%s: %s -> %s, %s%s%.*s", name_.c_str(), nameOf(change.from), nameOf(change.to),
             nameOf(event), why.empty() ? "" : ": ", static_cast<int>(why.size()), why.data());
    return change.action;
  }
  return Action::none;
}

}  // namespace weft::core
