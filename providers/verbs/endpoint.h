// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "providers/common/lane_life.h"
#include "providers/verbs/queue.h"
#include "providers/verbs/send_queue.h"

// A lane: reliable connected queue pairs, mostly one. With several (WEFT_QPS_PER_CONNECTION), large works
// take them in turn, so that a fabric that picks paths by flow spreads them; small works all go over the
// first. The lane is connected when all queue pairs are, and the failure of one is the failure of the lane.
// The states: lane_life.h. Used by the Queue's thread.
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
  void dialled(int error, const std::string& why);  // about one of the queue pairs
  void broke(int error, const std::string& why);    // a queue pair died, and no work failed with it
  void portWent(const std::string& down);           // empty: it is up
  void addressRead(const PortAddress& now);         // the port's addresses, as they are now
  bool isFirst(const SendQueue& one) const { return sendQueues_.front().get() == &one; }
  bool progress(TimePoint now);  // false: nothing remains to be done

  // From its SendQueues:
  void lost(int error, const std::string& why);  // a work failed
  void markerBack(bool acknowledged);
  Completion about(CompletionKind kind, int error = 0) { return completionOf(this, kind, error); }
  std::string failureWords() const { return named("writing to or reading from", firstFailure_); }

  explicit VerbsEndpoint(VerbsQueue& queue);

 private:
  // The way in which a lane is fenced. markers: writes behind everything else, whose acknowledgement is
  // awaited. draining: the queue pairs are in ERR, and outstanding works come back flushed. draining may
  // follow markers.
  enum class FenceBy : uint8_t { markers, draining };

  Status start();
  SendQueue* choose(const Work& work);
  size_t together(std::span<const Work> works) const;
  void rejected(const Work& work, int code);
  std::string whyUnreachable(const PortAddress& now) const;
  void tellTrouble();
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
  size_t turn_ = 0;                                     // the queue pair that carried the last large work
  LaneAddress own_;
  Bytes address_;         // own_, encoded
  std::string peerText_;  // the peer's address, for people
  LaneLife life_;
  FenceBy fenceBy_ = FenceBy::markers;
  size_t dialling_ = 0;       // queue pairs that are not connected yet
  bool everReady_ = false;    // packets may have left
  std::optional<Gid> used_;   // our address by which the peer reaches us; none: not known yet, or by LID
  std::string portDown_;      // why nothing passes the port now; empty: it is up
  std::string addressGone_;   // why the peer cannot reach us now; empty: it can
  std::string told_;          // the one of these two that the protocol knows of
  std::string firstFailure_;  // the reason of the lane's end, for all its works
  TimePoint strayUntil_{};    // until then a packet may be on the wire
};

}  // namespace weft::verbs
