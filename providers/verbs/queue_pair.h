// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <memory>

#include "providers/verbs/address.h"
#include "providers/verbs/ports.h"

// A reliable connected queue pair and the moves between its states. Shared by its SendQueue and, while it
// connects, by the Dialer's thread: the last holder destroys it. Posting is the SendQueue's.
namespace weft::verbs {

// The objects that all queue pairs of a Queue need; they go after the last of them.
struct QueueObjects {
  std::shared_ptr<const Library> library;
  Port port;
  int trafficClass = 0;
  ibv_pd* pd = nullptr;  // the Device's
  Handle<ibv_cq> cq{nullptr, nullptr};
  Handle<ibv_srq> srq{nullptr, nullptr};
};

class QueuePair {
 public:
  // `works` is how many may be outstanding. It comes out in INIT, so the peer can be told its number.
  static Result<std::shared_ptr<QueuePair>> create(std::shared_ptr<const QueueObjects> objects,
                                                   std::shared_ptr<const PortAddress> reachedBy,
                                                   uint32_t works);

  // To RTR and RTS. May block for seconds while the kernel resolves the peer's address.
  Status connect(const LaneAddress& peer);

  // To ERR: nothing more leaves, and what is outstanding is flushed. Never blocks long.
  void fail();
  bool failed() const { return failed_.load(std::memory_order_relaxed); }  // any thread

  // The card takes no more receives for it. By the Queue's thread.
  void noteLastTaken() { tookLast_ = true; }
  bool tookLast() const { return tookLast_; }

  const LaneAddress& address() const { return address_; }
  uint32_t number() const { return qp_->qp_num; }
  uint32_t inlineBytes() const { return inlineBytes_; }
  ibv_qp* get() const { return qp_.get(); }

  QueuePair(std::shared_ptr<const QueueObjects> objects, std::shared_ptr<const PortAddress> reachedBy)
      : objects_(std::move(objects)), reachedBy_(std::move(reachedBy)) {}

 private:
  Status open(uint32_t works);
  Status initialise();
  void offerExtensions();
  Status agreeOnExtensions(const LaneAddress& peer);
  Status receive(const LaneAddress& peer, size_t gid);
  Status send();
  void route(const LaneAddress& peer, size_t gid, ibv_ah_attr* out) const;
  Status modify(ibv_qp_attr* attributes, int mask, const std::string& what);

  const std::shared_ptr<const QueueObjects> objects_;
  const std::shared_ptr<const PortAddress> reachedBy_;
  Handle<ibv_qp> qp_{nullptr, nullptr};
  LaneAddress address_;
  uint32_t inlineBytes_ = 0;
  uint8_t readsAsked_ = 1;  // outstanding, as the peer answers them
  std::atomic<bool> failed_{false};
  bool tookLast_ = false;
};

}  // namespace weft::verbs
