// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <algorithm>
#include <string>

#include "src/stats/layout.h"

// The pen of one comm: writes its line of the process's counters. Owned by the comm, used only by who has
// entered its engine. Without a line, as counting is switched off or all lines are taken, it does nothing.
namespace weft::stats {

class CommStats {
 public:
  CommStats() = default;
  explicit CommStats(CommLine* line) : line_(line) {}

  CommLine* line() const { return line_; }

  // A request begins. Returns its number, which its completion is told by.
  uint32_t posted(uint32_t tag, uint32_t k, uint64_t bytes, Way way) {
    if (!line_) return 0;
    const bool timed = isTimed(way == Way::none && large_ == 0 ? 0 : bytes);
    if (timed) last_ = ticks();
    if (line_->waitsSince.get() != 0) [[unlikely]]
      return postedLate(tag, k, bytes, way);
    if (line_->posted.get() == line_->done.get()) line_->busySince.set(last_);
    write(tag, k, bytes, way, timed, 0);
    return static_cast<uint32_t>(number_);
  }

  // It is over, with so many bytes, and came this way; none: as it was said when it was posted. A number
  // whose record holds another request by now is still counted.
  void done(uint32_t number, uint64_t bytes, Way way) {
    if (!line_) return;
    CommLine& line = *line_;
    Record& record = line.records[(number - 1) % kRecords];
    SizeClass& size = line.sizes[sizeClassOf(bytes)];
    const uint32_t said = record.way.get();
    const uint32_t flags = said & (kTimed | kCameInParts);
    if (way == Way::none) way = static_cast<Way>(said & 7);
    if (flags) last_ = ticks();
    const uint64_t now = last_;
    if (static_cast<uint32_t>(record.number.get()) == number) {
      record.bytes.set(static_cast<uint32_t>(bytes));
      record.way.set(static_cast<uint32_t>(way) | flags);
      record.done.publish(now);
      if (flags & kTimed) {
        const uint64_t took = now - record.posted.get();
        line.latency[bucketOf(took)].add(1);
        size.timed.add(1);
        size.ticks.add(took);
      }
    }
    large_ = bytes >= kAlwaysTimed ? kRemembered : large_ - (large_ > 0);
    count(line, size, bytes, way);
    if (line.done.get() == line.posted.get()) idle(line, now);
  }

  // Begun and over at once: it has left by memory of ours.
  void whole(uint32_t tag, uint32_t k, uint64_t bytes) {
    if (!line_) return;
    const bool timed = isTimed(bytes);
    if (timed) last_ = ticks();
    if (line_->waitsSince.get() != 0) [[unlikely]]
      return wholeLate(tag, k, bytes);
    write(tag, k, bytes, Way::eager, false, last_);
    count(*line_, line_->sizes[sizeClassOf(bytes)], bytes, Way::eager);
  }

  void told(uint32_t number) {
    if (!line_) return;
    Record& record = line_->records[(number - 1) % kRecords];
    if (static_cast<uint32_t>(record.number.get()) == number) record.told.set(last_);
  }

  // A part of it is here, and others are still to come. The first call for a request counts.
  void begun(uint32_t number) {
    if (!line_) return;
    Record& record = line_->records[(number - 1) % kRecords];
    const uint32_t way = record.way.get();
    if (static_cast<uint32_t>(record.number.get()) != number || (way & kCameInParts) != 0) return;
    record.first.set(last_ = ticks());
    record.way.publish(way | kCameInParts);
  }

  // A message's sum was compared with its sender's.
  void checked(bool same) {
    if (!line_) return;
    line_->checked.add(1);
    if (!same) line_->corrupt.add(1);
  }

  // The comm has failed. The first reason counts.
  [[gnu::cold]] void failed(const std::string& reason) {
    if (!line_ || line_->failedAt.get() != 0) return;
    line_->reason.fill(0);
    std::copy_n(reason.data(), std::min(reason.size(), line_->reason.size() - 1), line_->reason.data());
    line_->failedAt.publish(last_ = ticks());
    line_->state.set(static_cast<uint32_t>(LineState::failed));
  }

  // To be called now and then: what follows is no older than that, though it reads no time of its own.
  void refresh() {
    if (line_) last_ = ticks();
  }

  // A send wants to leave and may not; asked again and again. It is over with the next send that leaves.
  void refused(uint32_t tag, uint32_t k, uint64_t bytes) {
    if (!line_ || line_->waitsSince.get() != 0) return;
    line_->waitTag.set(tag);
    line_->waitK.set(k);
    line_->waitBytes.set(static_cast<uint32_t>(bytes));
    line_->waits.add(1);
    line_->waitsSince.publish(last_ = ticks());
  }

 private:
  // The time of a small message would cost more than the rest of its counting: one in 16 is timed.
  static constexpr uint64_t kAlwaysTimed = 16 << 10;
  // What a receive gets is not known when it is posted: NCCL mostly has room for the most that may come. So
  // it is as those before it, of which one in so many may be large.
  static constexpr uint32_t kRemembered = 16;
  bool isTimed(uint64_t bytes) const { return bytes >= kAlwaysTimed || number_ % 16 == 0; }

  void write(uint32_t tag, uint32_t k, uint64_t bytes, Way way, bool timed, uint64_t done) {
    CommLine& line = *line_;  // what lies behind a fence would be loaded again
    Record& record = line.records[number_ % kRecords];
    const uint64_t number = ++number_;
    const uint64_t now = last_;
    record.number.set(0);
    std::atomic_thread_fence(std::memory_order_release);  // before all that follows
    record.posted.set(now);
    record.told.set(0);
    record.done.set(done);
    record.tag.set(tag);
    record.k.set(k);
    record.bytes.set(static_cast<uint32_t>(bytes));
    record.way.set(static_cast<uint32_t>(way) | (timed ? kTimed : 0));
    record.number.publish(number);
    line.posted.set(number);
  }

  // The wait is over. Returns its begin.
  uint64_t left() {
    last_ = ticks();
    const uint64_t since = line_->waitsSince.get();
    line_->waited.add(last_ - since);
    line_->waitsSince.set(0);
    return since;
  }

  // A send that was refused before it left. Functions of their own, so that others pay nothing for it.
  [[gnu::cold, gnu::noinline]] uint32_t postedLate(uint32_t tag, uint32_t k, uint64_t bytes, Way way) {
    const uint64_t since = left();
    const uint32_t number = posted(tag, k, bytes, way);
    line_->records[(number - 1) % kRecords].told.set(since);
    return number;
  }
  [[gnu::cold, gnu::noinline]] void wholeLate(uint32_t tag, uint32_t k, uint64_t bytes) {
    const uint64_t since = left();
    whole(tag, k, bytes);
    line_->records[(number_ - 1) % kRecords].told.set(since);
  }

  static void count(CommLine& line, SizeClass& size, uint64_t bytes, Way way) {
    size.messages.add(1);
    size.bytes.add(bytes);
    line.ways[static_cast<size_t>(way)].add(1);
    line.done.add(1);
  }

  static void idle(CommLine& line, uint64_t now) {
    line.busy.add(now - line.busySince.get());
    line.busySince.set(0);
  }

  CommLine* line_ = nullptr;
  uint64_t number_ = 0;           // of the latest request
  uint64_t last_ = 0;             // ticks, when they were read last
  uint32_t large_ = kRemembered;  // 0: none of the last messages was
};

}  // namespace weft::stats
