// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <bit>
#include <memory>
#include <string>
#include <vector>

#include "src/control/hub.h"
#include "src/core/ending.h"
#include "src/core/failover.h"
#include "src/core/lane.h"
#include "src/core/memory_book.h"
#include "src/core/messages.h"
#include "src/core/wire.h"
#include "src/mem/arena.h"

// Everything between one engine here and one engine of another process (or of this one): the lanes, the eager
// pool the peer writes into and the staging we write from, credits.
// All comms between the two engines share it. Owned by the Engine; used only by who has entered it.
namespace weft::core {

class Engine;
enum class WorkKind : uint8_t;

template <class Body>
void tellEngine(control::Peer& peer, const EngineHeader& header, MessageType type, const Body& body) {
  ByteWriter out;
  header.encode(&out);
  encodeBody(&out, body);
  peer.send(static_cast<uint16_t>(type), out.take());
}

class Peering {
 public:
  static constexpr size_t kMaxLanes = MemoryBook::kMaxLanes;
  using Imported = MemoryBook::Imported;

  // `life`: which of the peerings that the engine ever made it is; numbers come again.
  static Result<std::unique_ptr<Peering>> create(Engine& engine, uint32_t number, uint32_t life,
                                                 control::PeerRef peer, uint32_t remoteEngine,
                                                 uint16_t remoteRails);
  ~Peering();

  uint32_t number() const { return number_; }
  uint32_t life() const { return life_; }
  const control::PeerRef& peer() const { return peer_; }
  uint32_t remoteEngine() const { return remoteEngine_; }

  // Life:
  PeeringInfo half() const;
  MemoryNotice noticeOf(const mem::Region& region, uint32_t id) const;  // what the peer needs to write there
  // The peer's half: imports its memory, starts the lanes; again is harmless. Fails the peering if it fails.
  Status adopt(const PeeringInfo& half);
  void afterPoll();  // the queues were just polled: the next lane, and what fail-over waits for
  // Our end of a lane gets the peer's address; the peer is told where its writes depend on that.
  Status connectLane(Lane& lane, std::span<const std::byte> address);
  void onLaneConnected(const LaneMessage& message);  // the peer's end has ours
  bool ready() const { return adopted_ && lanesUp_ > 0 && lanesPending_ == 0; }
  const Ending* ending() const { return ending_.get(); }  // null: it is not over
  bool halted() const { return halted_; }  // it failed, is in doubt, or the peer's engine is gone
  // Its last lane is lost, and the peer has not said yet whether it closed: calls say "later" for a moment.
  bool inDoubt() const { return doubt_ != nullptr; }
  void peerAnswered(uint64_t question);  // its engine is there
  void watchDoubt(TimePoint now);
  // The only way down; again is harmless. Every comm on it ends, and the peer is told once, if it was us.
  [[gnu::cold]] void end(Ending ending);
  void onEnded(const FailedMessage& message);  // the peer said so
  void peerEngineGone() { remoteGone_ = halted_ = true; }
  void endDoubt();  // ends it for what it was in doubt about
  bool remoteGone() const { return remoteGone_; }

  void laneConnected(Lane& lane, bool ok, const std::string& why);
  // With another one up its traffic moves there, else the peering fails. `tellPeer` unless it told us.
  [[gnu::cold]] void laneFailed(Lane& lane, const std::string& why, bool tellPeer = true);
  void laneRetired(Lane& lane);
  [[gnu::cold]] void failIfLeaving();  // the peer's engine is gone: what a lane lost, nobody will account for
  Failover* failover() const { return failover_.get(); }  // null with one lane
  size_t lanesUp() const { return lanesUp_; }
  bool upOn(size_t rail) const;               // some lane is, on this rail of ours
  bool upWithout(size_t rail) const;          // or on another one
  void fence();                               // starts retiring every lane
  bool fenced() const;                        // nothing of this side's can land any more
  std::string where(const Lane& lane) const;  // "rail eth0 to node7 pid 4711"

  // A wait for this peer ran into its deadline: later closes do not wait for it again.
  void markUnresponsive() { unresponsive_ = true; }
  bool unresponsive() const { return unresponsive_ || ending_ != nullptr || remoteGone_; }

  // Lanes:
  size_t laneCount() const { return laneCount_; }
  Lane& lane(size_t i) { return *lanes_[i]; }
  Lane* laneAt(size_t i) const {  // null: there are not so many
    if (i == 0) [[likely]]
      return lanes_.front().get();
    return i < lanes_.size() ? lanes_[i].get() : nullptr;
  }
  Lane* laneOf(const Endpoint* endpoint);
  // Whether what came in through `from` can be of this peer: another one may know our numbers as well. Null:
  // the fabric does not say who wrote.
  bool mayNotify(const Endpoint* from) {
    return (!from || &lanes_.front()->endpoint() == from || laneOf(from)) && lanes_.front()->notePeerSeen();
  }
  Lane& quickestLane(uint64_t bytes) {
    if (onlyLane_) [[likely]]
      return *onlyLane_;
    return quickestOfSeveral(bytes);
  }
  bool mayBeSplit(uint64_t bytes) const { return bytes >= splitFrom_; }  // else it goes by one lane
  size_t split(uint64_t bytes, std::array<Segment, kMaxSegments>* out);
  bool wantsDelivered() const { return wantsDelivered_; }
  // Work that no message waits for: a line, or credits. Quiet where there is one lane; with several, a lane
  // must not lose it in silence.
  void aside(Work* work, const Lane& lane) const;  // posting.h
  // Hands one work to the fabric; with `more`, or when the fabric is full, the engine's next flush does.
  void submit(Lane& lane, const Work& work, bool more = false);  // posting.h
  bool flush(TimePoint now);                                     // true: the fabric took not all of it
  // Somewhere in the peer's memory that is always there: what a message without bytes is written to.
  RemoteMemory landing(const Lane& lane) const { return remotePool_[lane.number()]; }
  uint64_t landingOffset() const { return remote_.creditOffset; }

  // Eager, sending side:
  bool sendsEagerly(size_t bytes) const { return bytes < eagerRoom_; }
  bool hasEagerSlot() {
    if (freeEagerSlots() == 0) learnCredits();
    return freeEagerSlots() != 0;
  }
  int takeEagerSlot() {  // -1: no credit
    uint64_t free = freeEagerSlots();
    if (free == 0) [[unlikely]] {
      learnCredits();
      if ((free = freeEagerSlots()) == 0) return -1;
    }
    const int slot = std::countr_zero(free);
    slotsUsed_ ^= uint64_t{1} << slot;
    slotUses_[static_cast<size_t>(slot)]++;
    return slot;
  }
  uint32_t eagerUse(int slot) const { return slotUses_[static_cast<size_t>(slot)] - 1; }  // of a taken one
  std::byte* eagerStaging(int slot) const {
    return staging_.data() + static_cast<size_t>(slot) * localSlotBytes_;
  }
  void sendEager(int slot, size_t bytes);  // header and payload; posting.h
  void sendEagerAgain(int slot);           // it was lost with its lane
  // What left from there by this fenced lane is there, whenever its credit comes: the lane's next incarnation
  // has nothing to do with it.
  void eagerAccounted(int slot, const Lane& lane) {
    uint8_t& by = slotLanes_[static_cast<size_t>(slot)];
    if (by == lane.number()) by = kNoLane;
  }
  void eagerLanded(uint32_t slot) { writtenAgain_ &= ~(uint64_t{1} << slot); }  // what was sent again
  template <class Visit>
  void eachUnreturned(const Lane& lane, Visit visit);  // slots that left by this fenced lane, without credit

  // Eager, receiving side:
  bool mayArriveEagerly(size_t bytes) const { return bytes < ownEagerRoom_; }
  const std::byte* eagerArrived(
      uint32_t slot) const {  // where slot i of our pool lies; nullptr: no such slot
    return slot < localSlots_ ? landing_.data() + size_t{slot} * localSlotBytes_ : nullptr;
  }
  // False: not the use that comes next, whether the notification or the whole write comes again; or one of a
  // slot that still holds the last one's message.
  bool holdEagerSlot(uint32_t slot, uint32_t use) {
    if (use != usesHere_[slot] || ((use ^ freedHere_ >> slot) & 1) != 0) return false;
    usesHere_[slot]++;
    return true;
  }
  void freeEagerSlot(uint32_t slot) {
    freedHere_ ^= uint64_t{1} << slot;
    if (++freedUntold_ * 2 >= localSlots_) returnCredits();
  }
  void returnCredits(bool again = false);  // again: also if there is nothing new
  void creditLanded();
  void creditsAfterFence(const Lane& lane);  // what was told last by this lane may be lost
  bool missesEager(uint32_t slot, uint32_t use, uint32_t mask) const {
    return slot < localSlots_ && ((usesHere_[slot] ^ use) & mask) == 0;
  }

  MemoryBook& memory() { return memory_; }

  // Talk:
  template <class Body>
  void tell(MessageType type, const Body& body) {
    tellEngine(*peer_, {remoteEngine_, localEngine_, remote_.life}, type, body);
  }

  int comms = 0;  // on this peering

  Peering(Engine& engine, uint32_t number, uint32_t life, control::PeerRef peer, uint32_t remoteEngine);

 private:
  void lastLaneFailed(Error error);
  Status openLanes(uint16_t remoteRails);
  Result<std::unique_ptr<Endpoint>> openEndpoint(size_t* rail) const;
  void prepareEager();
  Work eagerWrite(const Lane& lane, int slot) const;
  Status takeMemory();
  Status take(const PeeringInfo& half);
  Status connectNextLane();
  void tellTraffic() const;
  std::byte* creditLanding() const;
  std::byte* creditStaging() const;
  void learnCredits();
  uint64_t freeEagerSlots() const { return ~((slotsUsed_ ^ slotsFreed_) | writtenAgain_) & slotMask_; }
  uint32_t nextTurn();
  void endRound();
  [[gnu::noinline]] Lane& quickestOfSeveral(uint64_t bytes);
  [[gnu::noinline]] Lane& quickestByLoad(uint64_t bytes, uint32_t turn);

  Engine& engine_;
  uint32_t number_;
  uint32_t life_;
  control::PeerRef peer_;
  uint32_t remoteEngine_;
  uint32_t localEngine_;
  uint16_t remoteRails_ = 1;

  mem::Block landing_;  // the peer writes here: our eager pool, then its credit line for us
  mem::Block staging_;  // we write from here: eager slot i goes to slot i there; then our credit line
  std::vector<std::unique_ptr<Lane>> lanes_;
  uint32_t laneCount_ = 0;    // of them, for who counts with every message
  Lane* onlyLane_ = nullptr;  // where there are no others
  std::unique_ptr<Failover> failover_;
  size_t lanesUp_ = 0;
  size_t lanesPending_ = 0;    // connecting for the first time
  size_t lanesConnected_ = 0;  // of them have been told the peer's address
  bool adopted_ = false;
  bool remoteGone_ = false;
  bool unresponsive_ = false;
  bool halted_ = false;  // failed, or the peer's engine is gone: nothing is handed to the fabric any more
  bool wantsDelivered_ = false;
  bool awaitsFlush_ = false;  // is in the engine's list
  std::unique_ptr<Ending> ending_;
  std::unique_ptr<Error> doubt_;
  TimePoint doubtedAt_{};
  uint32_t turn_ = 0;                // the lane that comes first among equal ones
  float fastest_ = 0;                // rate of any lane, at the end of the last round; 0: not known
  uint64_t splitFrom_ = UINT64_MAX;  // bytes

  // Nobody waits for the completion of an eager write where there is one lane; what leaves from every eighth
  // slot has one all the same, so that a lane gone silent is seen.
  static constexpr int kVouchingSlots = 8;

  MemoryBook memory_;
  PeeringInfo remote_;
  Imported remotePool_{};
  std::vector<Work> eagerWrites_;  // of each lane from each slot, but for the length
  size_t eagerRoom_ = 0;           // sending: what is smaller may leave eagerly; 0: the peer takes none
  uint32_t localSlots_ = 0;        // of our pool
  uint32_t localSlotBytes_ = 0;
  size_t ownEagerRoom_ = 0;  // what is smaller may come eagerly; 0: nothing does
  uint64_t slotMask_ = 0;    // sending: the slots there are
  uint64_t slotsUsed_ = 0;   // sending: bit flips at each use
  uint64_t slotsFreed_ = 0;  // sending: as the peer last told
  std::array<uint32_t, kEagerSlotsPerPeering> slotUses_{};  // sending: how often each was taken
  std::array<uint8_t, kEagerSlotsPerPeering> slotLanes_{};  // sending: what each left by last
  uint64_t writtenAgain_ = 0;                               // sending: and not known to have landed
  uint32_t creditsRead_ = 0;                                // sequence of the last credit line believed
  uint64_t freedHere_ = 0;                                  // receiving: bit flips when a slot is free again
  std::array<uint32_t, kEagerSlotsPerPeering> usesHere_{};  // receiving: how often each held a message
  uint32_t freedUntold_ = 0;
  bool creditFlies_ = false;  // a line is under way, on this lane
  bool creditDue_ = false;    // another one is wanted when that has landed
  uint8_t creditLane_ = 0;
  uint32_t creditSequence_ = 0;
};

template <class Visit>
void Peering::eachUnreturned(const Lane& lane, Visit visit) {
  learnCredits();
  const uint64_t out = slotsUsed_ ^ slotsFreed_;
  for (int slot = 0; slot < static_cast<int>(kEagerSlotsPerPeering); slot++) {
    if (slotUses_[static_cast<size_t>(slot)] == 0 || slotLanes_[static_cast<size_t>(slot)] != lane.number())
      continue;
    writtenAgain_ &= ~(uint64_t{1} << slot);
    if (out >> slot & 1) visit(slot);
  }
}

}  // namespace weft::core
