// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <string>
#include <vector>

#include "src/base/clock.h"
#include "src/core/eager_receiver.h"
#include "src/core/eager_sender.h"
#include "src/core/ending.h"
#include "src/core/engine_parts.h"
#include "src/core/lane_set.h"
#include "src/core/messages.h"
#include "src/core/path_owner.h"

// What becomes of what a lost lane carried while another is left: both ends fence it, tell each other what
// they cannot account for, the receiver asks for what is missing, and later both connect its next
// incarnation. The states are in docs/design.md, "Fail-over"; LaneSet has them, this is the talk about them.
// Owned by its Peering; used only by who has entered the engine.
namespace weft::core {

class Failover {
 public:
  // What the talk about lanes needs of the peering that they are of.
  class Talk {
   public:
    virtual bool opening() const = 0;                       // the peer's half is not here
    virtual const Ending* ending() const = 0;               // null: it is not over
    virtual std::string where(const Lane& lane) const = 0;  // "rail eth0 to node7 pid 4711"
    virtual std::string peerName() const = 0;
    virtual void send(MessageType type, Bytes body) = 0;  // to the peer's engine
    virtual void end(Ending ending) = 0;
    virtual Status connectLane(Lane& lane, std::span<const std::byte> address) = 0;
    // Its eager messages and credits:
    virtual void sendEagerAgain(int slot) = 0;
    virtual void creditsAfterFence(const Lane& lane) = 0;
    // Its comms:
    virtual void eachSend(const PathOwner::SendVisit& visit) = 0;
    virtual void tellCts(const Lane& lane) = 0;
    virtual bool isOfComm(const ReceiveSlot& slot, uint32_t comm) const = 0;

   protected:
    ~Talk() = default;
  };

  Failover(EngineParts& parts, PathOwner& owner, Talk& talk, LaneSet& lanes, EagerSender& eagerOut,
           const EagerReceiver& eagerIn);

  void begin(Lane& lane);  // it is lost, and others are left
  void onUp(Lane& lane);
  void onFenced(Lane& lane);  // our end
  void onReopened(Lane& lane);
  bool onMessage(MessageType type, ByteReader* body);  // false: it does not decode, or cannot be
  void afterPoll();                                    // the queues were just polled
  void stuck(const Lane& lane);
  void onHalfHere();  // the peer's half; what was lost before is told

 private:
  // What left by a fenced lane: segments of a request, or an eager slot where that is not negative.
  struct Own {
    uint32_t request = 0;
    uint16_t generation = 0;
    uint16_t segments = 0;
    int eagerSlot = -1;
  };

  // How far the peer has come with the lane's incarnation, one after the other.
  enum class PeerTalk : uint8_t {
    nothing,
    left,      // it told us before we told it
    listed,    // its end is fenced, and its list of what it cannot account for is whole
    answered,  // and we have answered it
  };

  struct Record {
    PeerTalk talk = PeerTalk::nothing;
    uint32_t connected = 0;  // the incarnation that was last given the peer's address
    uint32_t givenUp = 0;    // the incarnation that the peer left before this side had it
    Bytes nextAddress;       // the peer is ready for the next one
    std::vector<Own> own;
    size_t answered = 0;  // of them
    std::vector<Suspect> theirs;
  };

  Record& recordOf(const Lane& lane) { return records_[lane.number()]; }
  bool nextGivenUp(const Lane& lane) { return recordOf(lane).givenUp == lane.incarnation() + 1; }
  Lane* laneNamed(uint8_t number) const;
  void tellLeft(const Lane& lane);
  void listOwn(Lane& lane);
  void answerList(Lane& lane);
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

  template <class Body>
  void tell(MessageType type, const Body& body) {
    ByteWriter out;
    encodeBody(&out, body);
    talk_.send(type, out.take());
  }

  EngineParts& parts_;
  PathOwner& owner_;
  Talk& talk_;
  LaneSet& lanes_;
  EagerSender& eagerOut_;
  const EagerReceiver& eagerIn_;
  std::array<Record, LaneSet::kMaxLanes> records_;
};

}  // namespace weft::core
