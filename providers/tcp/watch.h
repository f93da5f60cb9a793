// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <vector>

#include "providers/tcp/stream.h"
#include "src/base/clock.h"
#include "src/base/fd.h"

// Which of a Queue's connections are read at a poll, each for a system call. Those where something came a
// moment ago are hot and are always read. Of the others, which are warm, one is read at a time, in turn:
// while nothing is hot that finds what comes as soon as reading all of them would. With many of them, those
// that were idle for long are left to an epoll set, which is asked now and then, so that a thousand idle
// peers cost nothing. One thread.
namespace weft::tcp {

class Watch {
 public:
  explicit Watch(const Clock& clock) : clock_(clock) {}
  void add(Stream* stream);  // a stream that is here already is read from the next poll on
  void remove(Stream* stream);

  // Reads what is to be read. `read` may remove any of them.
  template <class Read>
  void each(Read read) {
    bool any = false;
    for (size_t i = hot_.size(); i-- > 0;) {
      if (i >= hot_.size()) continue;  // several are gone
      Stream* stream = hot_[i];
      if (read(*stream)) {
        any = true;
        stream->emptyReads = 0;
      } else if (i < hot_.size() && hot_[i] == stream && ++stream->emptyReads >= kHotReads) [[unlikely]] {
        cool(i);
      }
    }
    if (!warm_.empty()) {
      const size_t reads = !any && isLate() ? warm_.size() : hot_.empty() || ++polls_ >= kTurn ? 1 : 0;
      for (size_t i = 0; i < reads && !warm_.empty(); i++) readWarm(read);
      if (reads > 0) polls_ = 0;
    }
    if (epoll_) [[unlikely]]
      lookAtTheCold(any);
  }

 private:
  static constexpr uint32_t kHotReads = 64;    // in vain, and it is warm
  static constexpr uint32_t kTurn = 4;         // polls from one warm one to the next, beside hot ones
  static constexpr size_t kMostWarm = 8;       // with more of them
  static constexpr uint32_t kWarmReads = 128;  // in vain make one cold
  static constexpr uint32_t kPolls = 16;       // that read something, from one look at the cold to the next
  static constexpr std::chrono::microseconds kSeldom{200};
  static constexpr std::chrono::microseconds kApart{20};  // in other polls

  template <class Read>
  void readWarm(Read read) {
    next_ = next_ + 1 < warm_.size() ? next_ + 1 : 0;
    Stream* stream = warm_[next_];
    const bool some = read(*stream);
    if (next_ >= warm_.size() || warm_[next_] != stream) return;  // it is gone
    if (some)
      warmUp(next_);
    else if (++stream->emptyReads >= kHotReads + kWarmReads && warm_.size() > kMostWarm) [[unlikely]]
      freeze(next_);
  }
  bool isLate();  // polls come seldom: nothing is left to the next one
  void cool(size_t index);
  void warmUp(size_t index);
  void freeze(size_t index);
  void lookAtTheCold(bool busy);

  const Clock& clock_;
  std::vector<Stream*> hot_, warm_;
  size_t next_ = 0;     // the warm one that was read last
  uint32_t polls_ = 0;  // since
  Fd epoll_;            // opened for the first one that is cold
  size_t cold_ = 0;
  uint32_t busyPolls_ = 0;
  TimePoint looked_{};
  TimePoint polled_{};  // in vain, last
};

}  // namespace weft::tcp
