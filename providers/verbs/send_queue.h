// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "providers/verbs/queue_pair.h"
#include "src/base/clock.h"
#include "weft/transport.h"

// A queue pair of a lane, and the works outstanding on it. Works finish in the order of posting. So a burst
// asks for one entry of the completion queue, at its end, and the entry stands for all works before it. An
// entry with success confirms everything up to its work. An entry with an error condemns everything that is
// not confirmed yet, as nobody can know whether works without an entry of their own have landed. Used by the
// Queue's thread.
namespace weft::verbs {

class VerbsEndpoint;
class VerbsQueue;

// Adaptive routing: switches may send the packets of a plain write on any path, but cards keep a write with
// an immediate on one path. So where both ends want it, a large notified write goes apart, as three requests:
// the data; an empty write whose immediate is their length; an empty write with the proper immediate. They
// take effect in this order. The target takes every empty notification for one of these, so a notification of
// no bytes goes apart too.
class SendQueue {
 public:
  static constexpr size_t kBurst = 32;

  // `depth` works may be outstanding, with a marker behind them.
  static Result<std::unique_ptr<SendQueue>> create(VerbsQueue& queue, VerbsEndpoint& lane, uint32_t depth);
  ~SendQueue();
  SendQueue(const SendQueue&) = delete;
  SendQueue& operator=(const SendQueue&) = delete;

  VerbsEndpoint& lane() const { return lane_; }
  uint64_t number() const { return number_; }  // never used twice on this Queue
  const std::shared_ptr<QueuePair>& pair() const { return pair_; }
  uint32_t pairNumber() const { return pair_->address().first().queuePair; }

  // Posts the first n works with one ring of the doorbell, and returns n: as many as there is room for here,
  // in the Queue and in a burst. `refusal`: the reason why the driver will never take works[n], or 0.
  size_t post(std::span<const Work> works, int* refusal);
  bool roomFor(const Work& work) const { return requestsOf(work) <= room(); }
  size_t outstanding() const { return posted_ - unfolded_; }  // requests

  // Called before connecting: both ends take notifications apart from their data.
  void goApart(uint32_t above);
  // Starts connecting. The lane's dialled() tells the outcome.
  Status dial(const LaneAddress& peer, TimePoint deadline);

  // For a notification: the bytes of its write. Nothing: the entry only tells the length of the next one.
  std::optional<uint64_t> lengthOf(const ibv_wc& entry);

  // For a send. True: unfold() may have something to hand out.
  bool finished(const ibv_wc& entry);
  bool unfold(Completion* out);  // false: nothing more

  // A write of no bytes. Its completion says that everything before it is over; the lane hears markerBack().
  void postMarker();
  bool markerOut() const { return markerOut_; }
  void condemnOutstanding();  // each is reported as cancelled

  SendQueue(VerbsQueue& queue, VerbsEndpoint& lane, uint32_t depth);

 private:
  enum class Purpose : uint8_t {
    work,
    unsignaled,
    part,  // a part of the work that ends further back
    marker,
  };
  struct Posted {
    uint64_t context = 0;
    Purpose purpose = Purpose::work;
  };

  // The requests of one ring of the doorbell.
  struct Burst {
    std::array<ibv_send_wr, kBurst> requests;
    std::array<ibv_sge, kBurst> pieces;
    size_t count = 0;
  };

  size_t room() const;
  bool isApart(const Work& work) const;
  size_t requestsOf(const Work& work) const { return isApart(work) ? 3 : 1; }
  size_t fitting(std::span<const Work> works) const;
  void add(const Work& work, Purpose purpose, Burst* burst);
  void addApart(const Work& work, Burst* burst);
  size_t keep(size_t requests);
  void fill(const Work& work, ibv_send_wr* request, ibv_sge* piece) const;
  bool wantsEntry(const Work& work, bool last);
  Posted& slot(uint32_t sequence) { return ring_[sequence & (ring_.size() - 1)]; }

  VerbsQueue& queue_;
  VerbsEndpoint& lane_;
  const uint64_t number_;
  std::shared_ptr<QueuePair> pair_;
  bool dialled_ = false;  // the peer may have reached it
  bool markerOut_ = false;
  bool apart_ = false;
  uint32_t apartAbove_ = 0;
  std::optional<uint32_t> announced_;  // the length of the write that the next notification is about

  // Sequence numbers, which wrap. Requests from unfolded_ to posted_ are outstanding; those before judged_
  // have their verdict.
  std::vector<Posted> ring_;
  const uint32_t depth_;
  uint32_t posted_ = 0;
  uint32_t judged_ = 0;
  uint32_t unfolded_ = 0;
  ibv_wc_status verdict_ = IBV_WC_SUCCESS;

  // Since the last work that asked for an entry.
  uint32_t unsignalled_ = 0;  // requests
  bool signaledUnposted_ = false;
  size_t bytesUnsignalled_ = 0;
};

}  // namespace weft::verbs
