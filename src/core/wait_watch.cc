// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/core/wait_watch.h"

#include <algorithm>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "src/base/log.h"

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

// A peer waits for us, and we for nobody.
bool weAreLate(const WaitLook& look) {
  return look.late && !look.waits;
}

std::string failedText(const std::string& peer) {
  return "the connection with " + peer +
         " ended with an error before, and this wait may follow from that; next: the warning "
         "of that time, here and there";
}

// The longest waits first.
std::vector<Named> waitsAfter(const std::vector<CommReport>& comms, TimePoint after) {
  std::vector<Named> named;
  for (const CommReport& state : comms) {
    for (const Wait& wait : state.waits)
      if (wait.counted != TimePoint{} && wait.counted > after) named.push_back({state, wait});
  }
  std::stable_sort(named.begin(), named.end(),
                   [](const Named& a, const Named& b) { return a.wait.counted < b.wait.counted; });
  return named;
}

}  // namespace

bool WaitWatch::begins(TimePoint now, Milliseconds said) {
  if (now - lookedAt_ < betweenLooks(said)) return false;
  lookedAt_ = now;
  return true;
}

WaitLook WaitWatch::look(TimePoint now) const {
  WaitLook look;
  look.now = now;
  look.after = toldUpTo_;
  return look;
}

Culprit WaitWatch::judge(WaitLook* look) const {
  if (!failed_.empty() && look->now - failedAt_ < kRemembered) look->blameFailed(failed_);
  return look->failed.empty() ? look->culprit : Culprit{look->failed, 0};
}

bool WaitWatch::mustWarn(const WaitLook& look, Milliseconds said) {
  if (said.count() == 0) return false;
  if (halted_ && !look.due && !look.late) {
    halted_ = false;
    WEFT_LOG(info, "all waits that a warning named are over");
  }
  if (!look.newlyDue && !weAreLate(look)) return false;
  toldUpTo_ = look.now;
  halted_ = true;
  warnings_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void WaitWatch::warn(const std::string& device, const std::vector<CommReport>& comms, const WaitLook& look) {
  weAreLate(look) ? warnOfUs(device, comms, look) : warnOfPeers(device, comms, look);
}

// The verdict is about the wait that began first, as the others mostly follow from it.
void WaitWatch::warnOfPeers(const std::string& device, const std::vector<CommReport>& comms,
                            const WaitLook& look) {
  const std::vector<Named> named = waitsAfter(comms, look.after);
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
      wholeSeconds(look.now - named[0].wait.counted), device.c_str(), text.c_str(),
      (look.failed.empty() ? verdictText(named[0].comm, named[0].wait) : failedText(look.failed)).c_str());
}

// A peer waits for a message of ours, and nothing is awaited here: the GPU, or the program, has not come to
// it. Of a tag that was never sent it may be that the program comes to another call.
void WaitWatch::warnOfUs(const std::string& device, const std::vector<CommReport>& comms,
                         const WaitLook& look) {
  CommReport of;
  Asked first;
  first.counted = look.now;
  for (const CommReport& state : comms) {
    for (const Asked& asked : state.asked) {
      if (asked.counted <= look.after || asked.counted >= first.counted) continue;
      of = state;
      first = asked;
    }
  }
  if (of.peer.empty()) return;
  WEFT_LOG(
      warn,
      "%s has posted a receive for message %u of tag %u on comm %u, on %s, which NCCL here has not sent for "
      "%lld s; verdict: this rank is late: it waits for nobody, and its GPU or its program has not come to "
      "that call%s; next: py-spy dump --pid %d, and what its GPU runs (nvidia-smi)",
      of.peer.c_str(), first.k, first.tag, of.number, device.c_str(), wholeSeconds(look.now - first.counted),
      first.strange ? (", or it is in another collective than " + of.peer).c_str() : "",
      static_cast<int>(::getpid()));
}

}  // namespace weft::core
