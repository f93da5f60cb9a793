// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/wait_watch.h"

#include <algorithm>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "src/base/log.h"
#include "src/core/comm.h"
#include "src/core/comm_report.h"

namespace weft::core {

namespace {

constexpr Milliseconds kLongestBetweenLooks{1000};
constexpr Milliseconds kBetweenLooks{500};  // of limits that are derived
constexpr size_t kMostNamed = 3;
constexpr size_t kMostBytes = 500;  // NCCL's logger cuts a line at 1024, and the verdict needs room

// A wait, with its comm.
struct Named {
  CommReport comm;
  Wait wait;
  std::string text() const {
    const std::string unmatched = unmatchedText(comm);
    return waitText(comm, wait) + (unmatched.empty() ? "" : "; " + unmatched);
  }
};

Milliseconds betweenLooks(Milliseconds said) {
  if (said.count() < 0) return kBetweenLooks;
  return said.count() == 0 ? kLongestBetweenLooks : std::min(kLongestBetweenLooks, said / 8);
}

long long wholeSeconds(Nanoseconds time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time).count();
}

std::string failedText(const std::string& peer) {
  return "the connection with " + peer +
         " ended with an error before, and this wait may follow from that; next: the warning "
         "of that time, here and there";
}

// The longest waits first.
std::vector<Named> waitsAfter(Engine& engine, TimePoint after) {
  std::vector<Named> named;
  engine.eachComm([&](CommBase& comm) {
    if (comm.failed()) return;
    const CommReport state = comm.describe();
    for (const Wait& wait : state.waits)
      if (wait.counted != TimePoint{} && wait.counted > after) named.push_back({state, wait});
  });
  std::stable_sort(named.begin(), named.end(),
                   [](const Named& a, const Named& b) { return a.wait.counted < b.wait.counted; });
  return named;
}

}  // namespace

void WaitWatch::look(Engine& engine, TimePoint now) {
  const Milliseconds said = engine.config().waitWarn;
  if (now - lookedAt_ < betweenLooks(said)) return;
  lookedAt_ = now;
  WaitLook look;
  look.now = now;
  look.after = toldUpTo_;
  engine.eachComm([&](CommBase& comm) {
    if (!comm.failed()) comm.noteWaits(&look);
  });
  if (!failed_.empty() && now - failedAt_ < kRemembered) look.blameFailed(failed_);
  engine.tellWait(look.failed.empty() ? look.culprit : Culprit{look.failed, 0});
  if (said.count() == 0) return;
  if (halted_ && !look.due && !look.late) {
    halted_ = false;
    WEFT_LOG(info, "all waits that a warning named are over");
  }
  const bool late = look.late && !look.waits;
  if (!look.newlyDue && !late) return;
  const TimePoint after = std::exchange(toldUpTo_, now);
  halted_ = true;
  late ? warnOfUs(engine, now, after) : warn(engine, look);
  warnings_.fetch_add(1, std::memory_order_relaxed);
}

// The verdict is about the wait that began first, as the others mostly follow from it.
void WaitWatch::warn(Engine& engine, const WaitLook& look) {
  const std::vector<Named> named = waitsAfter(engine, look.after);
  if (named.empty()) return;
  std::string text;
  size_t shown = 0;
  for (; shown < std::min(named.size(), kMostNamed); shown++) {
    const std::string next = named[shown].text();
    if (shown > 0 && text.size() + next.size() > kMostBytes) break;
    text += (shown > 0 ? "; " : "") + next;
  }
  if (shown < named.size()) text += format("; and %zu more", named.size() - shown);
  WEFT_LOG(
      warn, "NCCL has waited for %lld s on %s: %s; verdict: %s",
      wholeSeconds(look.now - named[0].wait.counted), engine.deviceName().c_str(), text.c_str(),
      (look.failed.empty() ? verdictText(named[0].comm, named[0].wait) : failedText(look.failed)).c_str());
}

// A peer waits for a message of ours, and nothing is awaited here: the GPU, or the program, has not come to
// it. Of a tag that was never sent it may be that the program comes to another call.
void WaitWatch::warnOfUs(Engine& engine, TimePoint now, TimePoint after) {
  CommReport of;
  Asked first;
  first.counted = now;
  engine.eachComm([&](CommBase& comm) {
    if (comm.failed()) return;
    const CommReport state = comm.describe();
    for (const Asked& asked : state.asked) {
      if (asked.counted <= after || asked.counted >= first.counted) continue;
      of = state;
      first = asked;
    }
  });
  if (of.peer.empty()) return;
  WEFT_LOG(
      warn,
      "%s has posted a receive for message %u of tag %u on comm %u, on %s, which NCCL here has not sent for "
      "%lld s; verdict: this rank is late: it waits for nobody, and its GPU or its program has not come to "
      "that call%s; next: py-spy dump --pid %d, and what its GPU runs (nvidia-smi)",
      of.peer.c_str(), first.k, first.tag, of.number, engine.deviceName().c_str(),
      wholeSeconds(now - first.counted),
      first.strange ? (", or it is in another collective than " + of.peer).c_str() : "",
      static_cast<int>(::getpid()));
}

}  // namespace weft::core
