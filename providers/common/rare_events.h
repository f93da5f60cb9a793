// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "weft/transport.h"

// The completions that a Queue hands out beside those of its fabric: the fate of lanes, and failures. Words
// of a failure can be asked for until the next poll. Owned by the Queue; used by its thread.
namespace weft {

class RareEvents {
 public:
  bool empty() const { return events_.empty(); }
  bool explains() const { return !explanations_.empty(); }

  // Forgets the words of the last poll.
  void beginPoll() {
    if (!explanations_.empty()) [[unlikely]]
      explanations_.clear();
  }
  // For a later poll to hand out.
  void report(const Completion& completion, std::string why) {
    events_.push_back({completion, std::move(why)});
  }
  // Words for a completion that the running poll hands out by itself.
  void explainNow(const Completion& completion, std::string why) {
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
  // Drops events, for a lane that is destroyed before they were handed out.
  template <class Gone>
  void eraseIf(Gone gone) {
    std::erase_if(events_, [&](const Event& event) { return gone(event.completion); });
  }
  // Null: there are no words for it.
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
  std::vector<Event> explanations_;  // words for what the last poll handed out
};

// A completion of the lane; error 0 is success.
inline Completion completionOf(Endpoint* lane, CompletionKind kind, int error) {
  Completion completion;
  completion.kind = kind;
  completion.ok = error == 0;
  completion.error = error;
  completion.source = lane;
  return completion;
}

}  // namespace weft
