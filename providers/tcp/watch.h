// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <vector>

#include "providers/tcp/stream.h"
#include "src/base/clock.h"
#include "src/base/fd.h"

// Which of a Queue's connections are read at a poll. A few are read directly, always. With more of them those
// that were quiet for a while are left to an epoll set, which is asked now and then, so that a thousand idle
// peers cost nothing. One thread.
namespace weft::tcp {

class Watch {
 public:
  void add(Stream* stream);  // one that is here already is read from the next poll on
  void remove(Stream* stream);

  // Reads what is to be read.
  template <class Read>
  void each(Read read) {
    bool any = false;
    for (size_t i = 0; i < hot_.size(); i++) {
      Stream* stream = hot_[i];
      const bool some = read(*stream);
      any |= some;
      if (i >= hot_.size() || hot_[i] != stream) continue;  // it is gone
      stream->emptyReads = some ? 0 : stream->emptyReads + 1;
    }
    if (all_ > kAlwaysHot) [[unlikely]]
      wake(any);
  }

 private:
  static constexpr size_t kAlwaysHot = 6;
  static constexpr uint32_t kQuiet = 512;  // reads in vain
  static constexpr uint32_t kPolls = 16;
  static constexpr std::chrono::microseconds kApart{20};

  void wake(bool busy);
  void cool();
  void lookAtTheCold();
  bool handOver(Stream* stream);

  std::vector<Stream*> hot_;
  size_t all_ = 0;
  Fd epoll_;
  uint32_t polls_ = 0;
  TimePoint looked_{};
};

}  // namespace weft::tcp
