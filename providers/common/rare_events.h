// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "weft/transport.h"

// Completions that a Queue hands out beside those of its fabric: the fate of lanes, and failures with
// their words, which can be asked for until the next poll. Used by the Queue's thread.
namespace weft {

class RareEvents {
 public:
  bool empty() const { return events_.empty(); }
  bool explains() const { return !explanations_.empty(); }

  void beginPoll() {
    if (!explanations_.empty()) [[unlikely]]
      explanations_.clear();
  }
  void report(const Completion& completion, std::string why) {  // comes out of a later poll
    events_.push_back({completion, std::move(why)});
  }
  void explainNow(const Completion& completion, std::string why) {  // of the poll that runs
    explanations_.push_back({completion, std::move(why)});
  }
  size_t take(std::span<Completion> out) {
    size_t count = 0;
    while (count < out.size() && !events_.empty()) {
      out[count++] = events_.front().completion;
      if (!events_.front().completion.ok) explanations_.push_back(std::move(events_.front()));
      events_.pop_front();
    }
    return count;
  }
  template <class Gone>
  void eraseIf(Gone gone) {
    std::erase_if(events_, [&](const Event& event) { return gone(event.completion); });
  }
  // Null: nothing was said of it.
  const std::string* wordsOf(const Completion& completion) const {
    for (const Event& event : explanations_) {
      const Completion& known = event.completion;
      if (known.kind == completion.kind && known.source == completion.source &&
          known.context == completion.context)
        return &event.why;
    }
    return nullptr;
  }

 private:
  struct Event {
    Completion completion;
    std::string why;
  };

  std::deque<Event> events_;
  std::vector<Event> explanations_;  // of what the last poll handed out
};

// A completion of this lane: 0 is success.
inline Completion completionOf(Endpoint* lane, CompletionKind kind, int error) {
  Completion completion;
  completion.kind = kind;
  completion.ok = error == 0;
  completion.error = error;
  completion.source = lane;
  return completion;
}

}  // namespace weft
