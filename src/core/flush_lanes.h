// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <vector>

#include "src/core/engine_parts.h"
#include "src/core/lane_set.h"
#include "src/core/path_owner.h"

// An engine's lanes to itself, one a rail: a small read by each rail from where data landed makes everything
// that came before it visible. A LaneSet whose other end always answers, and has nothing to account for: a
// lane that is lost fails the flushes that wait for it, and is tried again. Owned by its Engine; used only by
// who has entered it.
namespace weft::core {

class FlushLanes final : private LaneOwner {
 public:
  FlushLanes(EngineParts& parts, PathOwner& owner);
  ~FlushLanes() = default;
  FlushLanes(const FlushLanes&) = delete;
  FlushLanes& operator=(const FlushLanes&) = delete;

  Status open();  // again is harmless; an error where no rail has one
  bool post(Request* request, const mem::RegionRef& region, uint64_t offset);  // false: it cannot be done
  void finished(const Completion& completion);                                 // of a read, by its context
  bool hasQueued() const { return lanes_.hasQueued(); }
  bool flush(TimePoint now) { return lanes_.flush(now); }
  void watch(TimePoint now);
  LaneSet& lanes() { return lanes_; }

 private:
  struct Read {
    uint32_t request;
    uint16_t generation;
    uint8_t lane;
    mem::RegionRef region;
    uint64_t offset;
    TimePoint since;
  };

  TimePoint now() override;
  Result<std::unique_ptr<Endpoint>> openEndpoint(size_t rail) override;
  void laneUp(Lane& lane) override;
  bool awaitsPeer(Lane&) override { return false; }
  void askPeer(TimePoint) override {}
  CardRetries retriesOf(size_t rail) const override { return parts_.railInfo(rail).retries; }
  void laneSuspected(Lane& lane) override { lanes_.lose(lane); }
  void laneLost(Lane& lane) override;
  void laneFenced(Lane& lane) override { lanes_.accounted(lane); }
  void laneReopened(Lane& lane) override;
  void laneStuck(Lane& lane) override { lanes_.fenced(lane); }  // all that could land is a byte of scratch_
  bool submit(Lane& lane, const Read& read);
  Request* waitingFor(const Read& read);
  void fail(Request* request, const Lane& lane, const std::string& why) const;

  EngineParts& parts_;
  PathOwner& owner_;
  mem::Block scratch_;
  LaneSet lanes_;
  std::vector<Read> held_;  // for lanes that are lost, until their next incarnation
};

}  // namespace weft::core
