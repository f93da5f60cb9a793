// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <deque>
#include <mutex>

#include <infiniband/verbs.h>

namespace softefa {

// Where completion queues report that they were armed and got something; a descriptor to poll. Owned by who
// created it through the verbs API, which destroys it after its completion queues. Any thread.
class EventChannel {
 public:
  explicit EventChannel(ibv_context* context);
  ~EventChannel();
  EventChannel(const EventChannel&) = delete;
  EventChannel& operator=(const EventChannel&) = delete;

  static EventChannel* of(ibv_comp_channel* channel);

  ibv_comp_channel* verbs() { return &verbs_; }
  bool valid() const { return verbs_.fd >= 0; }

  void notify(ibv_cq* cq);
  // The next event's queue; nullptr with errno when the descriptor does not block and has none.
  ibv_cq* wait();
  void forget(const ibv_cq* cq);  // the queue goes, and its events with it

 private:
  ibv_comp_channel verbs_{};
  std::mutex mutex_;
  std::deque<ibv_cq*> waiting_;
};

}  // namespace softefa
