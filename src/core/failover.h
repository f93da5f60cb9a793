// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <string>
#include <vector>

#include "src/base/clock.h"
#include "src/base/config.h"
#include "src/core/lane.h"
#include "src/core/messages.h"

// What becomes of a peering whose lane died while another is left: both ends fence it, tell each other what
// they cannot account for, the receiver asks for what is missing, and later the rail is tried again. The
// states are in docs/design.md, "Fail-over". Owned by its Peering; used only by who has entered the engine.
namespace weft::core {

class Engine;
class Peering;

// How long a lane's end is taken for that of its peer, whose goodbye comes by another way.
constexpr Milliseconds kDoubt{500};

class Failover {
 public:
  Failover(Engine& engine, Peering& peering);

  // The lane retires already, for this reason. `tellPeer` unless the peer was first.
  void begin(Lane& lane, const std::string& why, bool tellPeer);
  void onUp(Lane& lane);
  void onRetired(Lane& lane);                          // our end
  bool onMessage(MessageType type, ByteReader* body);  // false: it does not decode, or cannot be
  void afterPoll();                                    // the queues were just polled
  void watch(TimePoint now);                           // silence, deadlines, rails to try again
  void peerPolled(uint64_t asked);                     // after it was asked at this time
  bool recovering() const;                             // some lane has not been accounted for
  std::string causes() const;                          // of every lane that is not up, for an error

 private:
  // What left by a fenced lane: segments of a request, or an eager slot where that is not negative.
  struct Own {
    uint32_t request = 0;
    uint16_t generation = 0;
    uint16_t segments = 0;
    int eagerSlot = -1;
  };

  struct Record {
    std::string cause;
    TimePoint upAt{};
    TimePoint leftAt{};
    TimePoint connectBy{};
    TimePoint reviveAt{};
    Milliseconds pause{0};
    bool connecting = false;   // the peer's address of this incarnation is known
    Bytes nextAddress;         // the peer is ready for the next one
    bool nextGivenUp = false;  // and left it already
    bool peerRetired = false;  // and its list is whole
    bool settled = false;      // we answered it
    bool unsaid = false;       // nobody was warned yet
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
  void revive(Lane& lane);
  void connect(Lane& lane);
  void skipNext(Lane& lane);
  void sayLeft(const Lane& lane);
  bool onLaneRetire(const LaneMessage& message);
  bool onLaneRetired(RetiredMessage& message);
  bool onMissing(const MissingMessage& message);
  bool onLaneAddress(const LaneMessage& message);
  void watchSilence(Lane& lane, TimePoint now);
  void watchEnding(Lane& lane, TimePoint now);
  void lengthenPause(Record& record) const;

  Engine& engine_;
  Peering& peering_;
  std::array<Record, 16> records_;
  std::vector<uint64_t> polledAsked_;  // the peer's questions, answered after the next poll
  TimePoint polledThere_{};            // the peer polled after this
  TimePoint askedAt_{};
};

}  // namespace weft::core
