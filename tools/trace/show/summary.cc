// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tools/trace/show/summary.h"

#include <algorithm>
#include <bit>
#include <set>

namespace weft::trace {

namespace {

bool isCollective(Kind kind) {
  return kind == Kind::iallreduce || kind == Kind::iallgather || kind == Kind::ireducescatter;
}

bool isOneSided(Kind kind) {
  return kind == Kind::iput || kind == Kind::iputSignal || kind == Kind::iget;
}

class Summarizer {
 public:
  void take(const Event& event) {
    KindTotals& totals = summary_.calls[event.kind];
    ++totals.calls;
    totals.errors += event.result != 0 ? 1 : 0;
    totals.nanoseconds += event.duration;
    threads_.insert(event.thread);
    first_ = std::min(first_, event.time);
    last_ = std::max(last_, event.time + event.duration);
    if (event.kind == Kind::isend || event.kind == Kind::irecv) takePost(event);
    if (isCollective(event.kind)) takeCollective(event);
    if (isOneSided(event.kind)) takeMove(event);
    if (event.kind == Kind::iflush) takeUses(event);
    if (event.kind == Kind::test) takeTest(event);
    if (event.kind == Kind::regMr || event.kind == Kind::regMrDmaBuf || event.kind == Kind::regMrSym)
      takeRegistration(event);
    if (event.kind == Kind::deregMr) dropRegistration(event[at::kMemory]);
  }

  Summary finish() {
    for (const auto& [number, post] : open_) ++livesOf(post.kind).neverDone;
    summary_.threads = threads_.size();
    summary_.nanoseconds = last_ > first_ ? last_ - first_ : 0;
    summary_.registrationsUsed = used_.size();
    return std::move(summary_);
  }

 private:
  struct Open {
    Kind kind;
    uint64_t time;
  };

  void takeUses(const Event& event) {
    for (const Part& part : event.parts) {
      if (part.memory == 0) continue;
      ++summary_.registrationUses;
      used_.insert(part.memory);
    }
  }

  Lives& livesOf(Kind kind) {
    if (isCollective(kind)) return summary_.collectives;
    if (isOneSided(kind)) return summary_.oneSided;
    return kind == Kind::isend ? summary_.sends : summary_.receives;
  }

  void open(const Event& event) {
    summary_.notNow += event[at::kNotNow];
    summary_.notNowNanoseconds += event[at::kWaited];
    follow(event);
  }

  void follow(const Event& event) {
    takeUses(event);
    if (event[at::kRequest] == 0) return;
    open_[event[at::kRequest]] = {event.kind, event.time};
    summary_.deepest = std::max(summary_.deepest, ++depth_[event[at::kComm]]);
  }

  // The size of an all-reduce is that of its vector, of the others that of the window.
  void takeCollective(const Event& event) {
    const size_t window = event.kind == Kind::iallgather ? at::kGatherWindow : at::kScatterWindow;
    const uint64_t bytes =
        event.kind == Kind::iallreduce && !event.parts.empty() ? event.parts[0].size : event[window + 2];
    ++summary_.sizes[std::bit_floor(bytes)].collectives;
    open(event);
  }

  // A signal alone has no size.
  void takeMove(const Event& event) {
    ++summary_.sizes[std::bit_floor(event.parts.empty() ? 0 : event.parts[0].size)].oneSided;
    follow(event);
  }

  void takePost(const Event& event) {
    for (const Part& part : event.parts) {
      SizeClass& sizes = summary_.sizes[std::bit_floor(part.size)];
      if (event.kind == Kind::irecv) ++sizes.receives;
      if (event.kind == Kind::irecv) continue;
      ++sizes.sends;
      sizes.sentBytes += part.size;
    }
    if (event.kind == Kind::irecv) ++summary_.groups[event.parts.size()];
    open(event);
  }

  void takeTest(const Event& event) {
    const auto found = open_.find(event[at::kRequest]);
    if (found == open_.end()) return;
    Lives& lives = livesOf(found->second.kind);
    const uint64_t life = event.time > found->second.time ? event.time - found->second.time : 0;
    ++lives.done;
    lives.tests += event[at::kTests];
    lives.nanoseconds += life;
    lives.longest = std::max(lives.longest, life);
    --depth_[event[at::kComm]];
    open_.erase(found);
  }

  void takeRegistration(const Event& event) {
    if (event.result != 0) return;
    ++summary_.registrations;
    bytes_[event[at::kMemory]] = event[at::kBytes];
    registered_ += event[at::kBytes];
    summary_.registered = std::max(summary_.registered, registered_);
  }

  void dropRegistration(uint64_t memory) {
    const auto found = bytes_.find(memory);
    if (found == bytes_.end()) return;
    registered_ -= found->second;
    bytes_.erase(found);
  }

  Summary summary_;
  std::set<uint32_t> threads_;
  std::set<uint64_t> used_;
  std::map<uint64_t, Open> open_;
  std::map<uint64_t, uint64_t> depth_;
  std::map<uint64_t, uint64_t> bytes_;
  uint64_t registered_ = 0;
  uint64_t first_ = UINT64_MAX;
  uint64_t last_ = 0;
};

}  // namespace

Summary summarize(const Trace& trace) {
  Summarizer summarizer;
  for (const Event& event : trace.events) summarizer.take(event);
  return summarizer.finish();
}

}  // namespace weft::trace
