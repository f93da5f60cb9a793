// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <string>
#include <vector>

#include "src/base/clock.h"
#include "src/core/lane_set.h"
#include "src/core/messages.h"

// What becomes of what a lost lane carried while another is left: both ends fence it, tell each other what
// they cannot account for, the receiver asks for what is missing, and later both connect its next
// incarnation. The states are in docs/design.md, "Fail-over"; LaneSet has them, this is the talk about them.
// Owned by its Peering; used only by who has entered the engine.
namespace weft::core {

class Engine;
class Peering;

class Failover {
 public:
  Failover(Engine& engine, Peering& peering);

  void begin(Lane& lane);  // it is lost, and others are left
  void onUp(Lane& lane);
  void onFenced(Lane& lane);  // our end
  void onReopened(Lane& lane);
  bool onMessage(MessageType type, ByteReader* body);  // false: it does not decode, or cannot be
  void afterPoll();                                    // the queues were just polled
  void stuck(const Lane& lane);

 private:
  // What left by a fenced lane: segments of a request, or an eager slot where that is not negative.
  struct Own {
    uint32_t request = 0;
    uint16_t generation = 0;
    uint16_t segments = 0;
    int eagerSlot = -1;
  };

  struct Record {
    bool connecting = false;   // the peer's address of this incarnation is known
    Bytes nextAddress;         // the peer is ready for the next one
    bool nextGivenUp = false;  // and left it already
    bool peerRetired = false;  // and its list is whole
    bool settled = false;      // we answered it
    bool peerLeft = false;     // it told us first
    std::vector<Own> own;
    size_t answered = 0;  // of them
    std::vector<Suspect> theirs;
  };

  Record& recordOf(const Lane& lane) { return records_[lane.number()]; }
  Lane* laneNamed(uint8_t number) const;
  void listOwn(Lane& lane);
  void settle(Lane& lane);
  void answer(const Lane& lane);
  uint16_t missingOf(const Suspect& suspect);
  void resolve(const Lane& lane, const Own& own, uint16_t missing);
  void endIfAccounted(Lane& lane);
  void connect(Lane& lane);
  void skipNext(Lane& lane);
  bool onLaneRetire(const LaneMessage& message);
  bool onLaneRetired(RetiredMessage& message);
  bool onMissing(const MissingMessage& message);
  bool onLaneAddress(const LaneMessage& message);
  void peerLeft(Lane& lane, const std::string& why);

  Engine& engine_;
  Peering& peering_;
  std::array<Record, LaneSet::kMaxLanes> records_;
};

}  // namespace weft::core
