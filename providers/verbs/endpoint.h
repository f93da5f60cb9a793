// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "providers/common/lane_life.h"
#include "providers/verbs/queue.h"
#include "providers/verbs/send_queue.h"

// A lane: reliable connected queue pairs, mostly one. With several (WEFT_QPS_PER_CONNECTION) large works go
// over them in turn, so that a fabric that picks paths by flow spreads them; small ones all go over the
// first. The lane is connected when all of them are, and the failure of one is that of the lane (lane_life.h
// has the states). Used by the Queue's thread.
namespace weft::verbs {

class VerbsEndpoint : public Endpoint, private LaneLife::Host {
 public:
  static Result<std::unique_ptr<Endpoint>> create(VerbsQueue& queue);
  ~VerbsEndpoint() override;

  std::span<const std::byte> address() const override { return address_; }
  Status connect(std::span<const std::byte> peerAddress) override;
  Result<RemoteMemory> import(std::span<const std::byte> blob) override;
  size_t post(std::span<const Work> works) override;
  void retire() override;

  // From the Queue:
  void dialled(int error, const std::string& why);  // one of the queue pairs
  void broke(int error, const std::string& why);    // died with no work to blame
  bool progress(TimePoint now);                     // false: nothing more to do

  // From its SendQueues:
  void lost(int error, const std::string& why);  // a work failed
  void markerBack(bool acknowledged);
  Completion about(CompletionKind kind, int error = 0) { return completionOf(this, kind, error); }
  std::string failureWords() const { return named("writing to or reading from", firstFailure_); }

  explicit VerbsEndpoint(VerbsQueue& queue);

 private:
  // How a lane is fenced: by markers behind everything else, which wait for their acknowledgement, or with
  // its queue pairs in ERR, from which what is outstanding comes back flushed. The second follows the first.
  enum class FenceBy : uint8_t { markers, draining };

  Status start();
  SendQueue* choose(const Work& work);
  size_t together(std::span<const Work> works) const;
  void rejected(const Work& work, int code);
  void startDraining();
  bool drained(TimePoint now, bool late);
  size_t outstanding() const;

  // LaneLife::Host
  size_t dropOutstanding(LaneState from, int error, const std::string& why) override;
  void startFence(LaneState from) override;
  std::optional<int> fenced(TimePoint now, bool late) override;
  void endFence(bool passed) override;
  void report(const Completion& completion, const std::string& why) override {
    queue_.report(completion, why);
  }
  std::string named(const char* what, const std::string& why) const override;
  Endpoint& endpoint() override { return *this; }

  VerbsQueue& queue_;
  std::vector<std::unique_ptr<SendQueue>> sendQueues_;  // not empty once started
  size_t turn_ = 0;                                     // the one that carried a large work last
  LaneAddress own_;
  Bytes address_;  // own_, encoded
  std::string peerText_;
  LaneLife life_;
  FenceBy fenceBy_ = FenceBy::markers;
  size_t dialling_ = 0;  // queue pairs that are not connected yet
  bool everReady_ = false;
  std::string firstFailure_;
  TimePoint strayUntil_{};  // until then a packet may be on its way
};

}  // namespace weft::verbs
