// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/wait_watch.h"

#include <algorithm>
#include <string>

#include "src/base/log.h"
#include "src/core/comm.h"
#include "src/core/comm_report.h"

namespace weft::core {

namespace {

constexpr Milliseconds kLongestBetweenLooks{1000};
constexpr size_t kMostNamed = 3;
constexpr size_t kMostBytes = 900;  // NCCL's logger cuts a line at 1024

}  // namespace

void WaitWatch::look(Engine& engine, TimePoint now) {
  const Milliseconds limit = engine.config().waitWarn;
  const bool warns = limit.count() > 0;
  if (now - lookedAt_ < (warns ? std::min(kLongestBetweenLooks, limit / 8) : kLongestBetweenLooks)) return;
  lookedAt_ = now;
  OldestWaits oldest{now, now};
  engine.eachComm([&](CommBase& comm) {
    if (!comm.failed()) comm.noteWaits(now, toldUpTo_, &oldest);
  });
  if (!warns) return;
  if (halted_ && now - oldest.all < limit) {
    halted_ = false;
    WEFT_LOG(info, "all waits that a warning named are over");
  }
  if (now - oldest.later < limit) return;
  const TimePoint after = toldUpTo_;
  toldUpTo_ = now;
  halted_ = true;
  warn(engine, now, after);
  warnings_.fetch_add(1, std::memory_order_relaxed);
}

// The longest waits first.
void WaitWatch::warn(Engine& engine, TimePoint now, TimePoint after) {
  struct Named {
    TimePoint since;
    std::string text;
  };
  std::vector<Named> named;
  engine.eachComm([&](CommBase& comm) {
    if (comm.failed()) return;
    const CommReport state = comm.describe();
    for (const Wait& wait : state.waits) {
      if (wait.counted == TimePoint{} || wait.counted <= after) continue;
      const std::string unmatched = unmatchedText(state);
      named.push_back({wait.counted, waitText(state, wait) + (unmatched.empty() ? "" : "; " + unmatched)});
    }
  });
  if (named.empty()) return;
  std::stable_sort(named.begin(), named.end(),
                   [](const Named& a, const Named& b) { return a.since < b.since; });
  std::string text;
  size_t shown = 0;
  for (; shown < std::min(named.size(), kMostNamed); shown++) {
    if (shown > 0 && text.size() + named[shown].text.size() > kMostBytes) break;
    text += (shown > 0 ? "; " : "") + named[shown].text;
  }
  if (shown < named.size()) text += format("; and %zu more", named.size() - shown);
  WEFT_LOG(
      warn, "NCCL has waited for %lld s on %s: %s",
      static_cast<long long>(std::chrono::duration_cast<std::chrono::seconds>(now - named[0].since).count()),
      engine.deviceName().c_str(), text.c_str());
}

}  // namespace weft::core
