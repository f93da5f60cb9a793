// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <atomic>
#include <memory>

#include "providers/verbs/address.h"
#include "providers/verbs/ports.h"

// A reliable connected queue pair and the changes of its state. Its SendQueue holds it, and the Dialer's
// thread as well while it connects: the last holder destroys it. Only the SendQueue posts to it.
namespace weft::verbs {

// The objects that all queue pairs of a Queue need. Each queue pair holds them, so they go after the last of
// them.
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
  // `works`: the number that may be outstanding. The queue pair comes out in state INIT, so its number can be
  // told to the peer.
  static Result<std::shared_ptr<QueuePair>> create(std::shared_ptr<const QueueObjects> objects,
                                                   std::shared_ptr<const PortAddress> reachedBy,
                                                   uint32_t works);

  // To RTR and RTS. May block for seconds, as the kernel resolves the peer's address.
  Status connect(const LaneAddress& peer);

  // To ERR: nothing more leaves, and outstanding works come back flushed. Never blocks for long. Any thread.
  void fail();
  bool failed() const { return failed_.load(std::memory_order_relaxed); }  // any thread

  // The card takes no more receives for this queue pair. Called by the Queue's thread.
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
  const std::shared_ptr<const PortAddress> reachedBy_;  // the port's address when it was made
  Handle<ibv_qp> qp_{nullptr, nullptr};
  LaneAddress address_;
  uint32_t inlineBytes_ = 0;
  uint8_t readsAsked_ = 1;  // reads that may be outstanding; the peer answers as many
  std::atomic<bool> failed_{false};
  bool tookLast_ = false;
};

}  // namespace weft::verbs
