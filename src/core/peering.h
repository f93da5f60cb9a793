// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "src/control/hub.h"
#include "src/core/eager_receiver.h"
#include "src/core/eager_sender.h"
#include "src/core/early_messages.h"
#include "src/core/ending.h"
#include "src/core/engine_parts.h"
#include "src/core/failover.h"
#include "src/core/gathering.h"
#include "src/core/lane_set.h"
#include "src/core/life.h"
#include "src/core/memory_book.h"
#include "src/core/messages.h"
#include "src/core/path_owner.h"
#include "src/core/same_host.h"
#include "src/core/standing.h"
#include "src/core/wire.h"
#include "src/mem/arena.h"

// Everything between one engine here and one engine of another process (or of this one): the lanes, the eager
// pool the peer writes into and the staging we write from, credits.
// All comms between the two engines share it. Owned by the Engine; used only by who has entered it.
namespace weft::core {

template <class Body>
void tellEngine(control::Peer& peer, const EngineHeader& header, MessageType type, const Body& body) {
  ByteWriter out;
  header.encode(&out);
  encodeBody(&out, body);
  peer.send(static_cast<uint16_t>(type), out.take());
}

class Peering final : private LaneOwner,
                      private EagerSender::Source,
                      private MemoryBook::Talk,
                      private Failover::Talk {
 public:
  using Imported = MemoryBook::Imported;

  // `life`: which of the peerings that the engine ever made it is; numbers come again.
  static Result<std::unique_ptr<Peering>> create(EngineParts& parts, PathOwner& owner, uint32_t number,
                                                 uint32_t life, control::PeerRef peer, uint32_t remoteEngine,
                                                 uint16_t remoteRails);
  ~Peering();

  uint32_t number() const { return number_; }
  uint32_t life() const { return lifeNumber_; }
  uint32_t remoteLife() const { return remote_.life; }  // 0: it has not told
  bool isBehind(uint32_t life) const { return remote_.life != 0 && remote_.life < life; }
  const control::PeerRef& peer() const { return peer_; }
  uint32_t remoteEngine() const { return remoteEngine_; }

  // Life:
  PeeringInfo half();
  MemoryNotice noticeOf(const mem::Region& region, uint32_t id) const;  // what the peer needs to write there
  // Of the keys of a notice of the peer's, the one for that lane; there is at least one key.
  const Bytes& keyFor(size_t lane, const std::vector<Bytes>& keys) const;
  // Which of the peer's peerings it is that has to hear what fails from now on; again is harmless.
  void hearOf(uint32_t life) {
    if (remote_.life == 0) remote_.life = life;
  }
  SameHost& sameHost() { return sameHost_; }
  bool sharesMemory() const { return sameHost_.state() == SameHost::State::yes; }
  // Nothing ever came in through a card.
  bool onlySharesMemory() const { return sharesMemory() && lanes_.onlyFirstNotified(); }
  // The peer's half: imports its memory, starts the lanes; again is harmless. Fails the peering if it fails.
  Status adopt(const PeeringInfo& half);
  void afterPoll();  // the queues were just polled: the next lane, and what fail-over waits for
  // Our end of a lane gets the peer's address; the peer is told where its writes depend on that.
  Status connectLane(Lane& lane, std::span<const std::byte> address) override;
  void onLaneConnected(const LaneMessage& message);  // the peer's end has ours, or stands
  Stage stage() const { return life_.stage(); }
  // A comm that has not failed can be used: also where the peer is gone already that needed it no more.
  bool ready() const { return life_.is(Stage::open) || over(); }
  const Ending* ending() const override { return ending_.get(); }     // null: it is not over
  bool opening() const override { return life_.is(Stage::opening); }  // the peer's half is not here
  bool halted() const { return stage() > Stage::open; }               // nothing new goes to the fabric
  bool suspected() const { return life_.is(Stage::paused); }
  bool over() const { return stage() >= Stage::left; }
  bool remoteGone() const { return life_.is(Stage::left); }
  // The only way down; again is harmless. Every comm on it ends, and the peer is told once, if it was us.
  [[gnu::cold]] void end(Ending ending) override;
  void onEnded(const FailedMessage& message);  // the peer said so
  void peerEngineGone() { life_.apply(Event::peerLeft); }
  // Ends it and fences its lanes, for a comm that is closed with data in flight. Again is harmless.
  [[gnu::cold]] void cut();
  [[gnu::cold]] void endIfLeaving();  // the peer's engine is gone: what a lane lost, nobody will account for
  void watch(TimePoint now);
  void tellRails();            // what they carried, for a profile
  bool tickBusy();             // something is outstanding here; asked by the control thread, once a tick
  bool isIdle(TimePoint now);  // no comm is on it; asked again and again, so that it knows since when
  TimePoint idleSince() const { return idleSince_; }
  std::string where(const Lane& lane) const override;  // "rail eth0 to node7 pid 4711"

  // A close waited for this peer in vain. Those that follow do not wait for it again, until the peer says
  // anything, or that close is long ago.
  void gaveNoAnswer(TimePoint now) { silentSince_ = now; }
  void heard() { silentSince_ = TimePoint{}; }
  bool unresponsive(TimePoint now) const {
    return over() || (silentSince_ != TimePoint{} && now - silentSince_ < kSilenceHolds);
  }

  // The process that the peer's engine waits for, as it has told; empty: for none that it knows of.
  const Culprit& waitsFor() const { return waitsFor_; }
  void hearWait(Culprit culprit) { waitsFor_ = {culprit.name.substr(0, kLongestName), culprit.k}; }
  void tellWait(const Culprit& culprit);

  // Lanes:
  LaneSet& lanes() { return lanes_; }
  const LaneSet& lanes() const { return lanes_; }
  Failover& failover() { return failover_; }
  size_t laneCount() const { return lanes_.size(); }
  Lane& lane(size_t i) { return lanes_.at(i); }
  // Called by tests alone:
  size_t lanesUp() const { return lanes_.up(); }
  void laneFailed(Lane& lane, const std::string& why) { lanes_.suspect(lane, why); }

  // Works that no message waits for are signaled where there are several lanes: none may lose one in silence.
  // With one lane whatever is lost is the peering's end, and a completion would only cost.
  bool signalsAll() const { return lanes_.several(); }
  bool wantsDelivered() const { return wantsDelivered_; }
  // Work that no message waits for: CTS, or credits.
  void aside(Work* work, const Lane& lane) const;  // posting.h
  // Hands one work to the fabric; with `more`, or when the fabric is full, the engine's next flush does.
  void submit(Lane& lane, const Work& work, bool more = false);  // posting.h
  // The same, with the others that wait; the number of the departure it will be part of, for leaveWith().
  uint32_t submitLater(Lane& lane, const Work& work);  // posting.h
  bool flush(TimePoint now);                           // true: the fabric took not all of it
  // Somewhere in the peer's memory that is always there: what a message without bytes is written to.
  RemoteMemory landing(const Lane& lane) const { return remotePool_[lane.number()]; }
  uint64_t landingOffset() const { return remote_.creditOffset; }

  // Eager: both halves, and what puts their messages and credits on the lanes.
  EagerSender& eagerOut() { return eagerOut_; }
  EagerReceiver& eagerIn() { return eagerIn_; }
  bool hasEagerSlot();  // a credit for one more; posting.h
  // A message that is sent now waits for others (gathering.h); one above `most` is worth a call of its own.
  bool follows(size_t bytes, size_t most);  // posting.h
  // Header and payload, from its staging. posting.h
  void sendEager(int slot, size_t bytes);
  // The same, with those that wait; its departure.
  uint32_t sendEagerLater(int slot, size_t bytes);
  // It leaves with the next one, or with the next poll.
  void sendEagerFollowed(int slot, size_t bytes);
  // Somebody waits for a message of that departure: it leaves now, if it has not left. 0: it did not wait.
  void leaveWith(uint32_t departure);
  void leaveNow();                         // all that waits
  void sendEagerAgain(int slot) override;  // it was lost with its lane
  void freeEagerSlot(uint32_t slot) {
    if (eagerIn_.free(slot)) returnCredits();
  }
  void returnCredits(bool again = false);  // again: also if there is nothing new
  void creditLanded();
  void creditsAfterFence(const Lane& lane) override;  // what was told last by this lane may be lost
  const mem::Block& staging() const { return staging_; }

  MemoryBook& memory() { return memory_; }
  // Whether messages may leave directly: one lane, whose other end asks where they land. Rails that may fail
  // over to each other account for what they carried by slots, which a direct message has not.
  bool takesDirect() const;
  EarlyMessages& early() { return early_; }
  // Whether what came in through `from` can be of this peer (LaneSet::mayNotify). Memory that both share
  // carries its first messages before the peer's half is here, which goes by the control link.
  bool mayNotify(const Endpoint* from) { return lanes_.mayNotify(from) || (from && sameHost_.is(from)); }

  // The memory that the peer writes a sender's CTS to. One may be on its way when the peer says that it has
  // closed, as the two go by different networks: so a ring is nothing else before the lanes are gone, and
  // goes from one comm of this peering to the next.
  Result<mem::Block> takeRing();
  void keepRing(mem::Block ring) { rings_.push_back(std::move(ring)); }  // needs no memory

  // The memory that a receiver's CTS are written from. A closed one's rests as long as writes from it may
  // wait in a queue: nobody is told when the last one has left, but a lane on which it has not in that time
  // is given up.
  Result<mem::Block> takeCtsStaging();
  void restStaging(mem::Block staging);

  // Talk:
  template <class Body>
  void tell(MessageType type, const Body& body) {
    tellEngine(*peer_, header(), type, body);
  }

  int comms = 0;  // on this peering

  Peering(EngineParts& parts, PathOwner& owner, uint32_t number, uint32_t life, control::PeerRef peer,
          uint32_t remoteEngine);

 private:
  EngineHeader header() const { return {remoteEngine_, localEngine_, remote_.life, lifeNumber_}; }
  const Work& eagerWork(const Lane& lane, int slot, size_t bytes);
  void awaitFlush();
  void lanesChanged();
  void flushSoon();
  Error lanesLost() const;
  TimePoint now() override;
  Result<std::unique_ptr<Endpoint>> openEndpoint(size_t rail) override;
  void laneUp(Lane& lane) override;
  bool awaitsPeer(Lane& lane) override;
  void askPeer(TimePoint now) override;
  CardRetries retriesOf(size_t rail) const override { return parts_.railInfo(rail).retries; }
  void laneSuspected(Lane& lane) override;
  void laneLost(Lane& lane) override;
  void laneFenced(Lane& lane) override;
  void laneReopened(Lane& lane) override { failover_.onReopened(lane); }
  void laneStuck(Lane& lane) override { failover_.stuck(lane); }
  Status openLanes(uint16_t remoteRails);
  Result<std::unique_ptr<Endpoint>> openFirst(size_t* rail) const;
  std::byte* takeStaging() override;
  // Failover::Talk:
  std::string peerName() const override { return peer_->name(); }
  void send(MessageType type, Bytes body) override;
  void eachSend(const PathOwner::SendVisit& visit) override { owner_.eachSendOn(*this, visit); }
  void tellCts(const Lane& lane) override { owner_.tellCts(*this, lane.number()); }
  bool isOfComm(const ReceiveSlot& slot, uint32_t comm) const override {
    return owner_.belongsTo(slot, *this, comm);
  }
  // MemoryBook::Talk:
  void announceToPeer(const mem::Region& region, uint32_t id) override;
  void withdrawFromPeer(uint32_t id) override;
  Result<Imported> importFromPeer(const MemoryNotice& notice) override;
  Work eagerWrite(const Lane& lane, int slot, std::byte* from) const;
  Status takeMemory();
  Status take(const PeeringInfo& half);
  Status settleSameHost(const PeeringInfo& half);
  void goThroughSharedMemory(const PeeringInfo& half);
  bool keepsRails(const PeeringInfo& half) const;
  size_t firstRail() const { return lanes_.prefersFirst() ? 1 : 0; }  // the first lane that goes over a rail
  Status checkKeys(const PeeringInfo& half) const;
  int eagerMost() const;  // bytes
  Status connectNextLane();
  void tellTraffic() const;
  std::byte* creditLanding() const;

  EngineParts& parts_;
  PathOwner& owner_;
  uint32_t number_;
  uint32_t lifeNumber_;
  control::PeerRef peer_;
  uint32_t remoteEngine_;
  uint32_t localEngine_;
  uint16_t remoteRails_ = 1;

  mem::Block landing_;  // the peer writes here: our eager pool, then its credit line for us
  mem::Block staging_;  // we write from here: eager slot i goes to slot i there; taken with the first one
  mem::Block credits_;  // and our credit record from here
  SameHost sameHost_;
  LaneSet lanes_;
  Failover failover_;
  size_t lanesConnected_ = 0;  // of them have been told the peer's address
  Life life_;
  Culprit waitsFor_;
  Culprit toldWait_;         // what the peer knows of our waits
  TimePoint silentSince_{};  // the peer let a closing call wait in vain; default: it did not, or has spoken
  bool wantsDelivered_ = false;
  bool awaitsFlush_ = false;  // is in the engine's list
  std::unique_ptr<Ending> ending_;
  TimePoint idleSince_{};  // no comm was on it when somebody first looked; default: there are some

  static constexpr Milliseconds kSilenceHolds{30'000};
  static constexpr size_t kLongestName = 160;
  // Nobody waits for the completion of an eager write where there is one lane; what leaves from every eighth
  // slot has one all the same, so that a lane gone silent is seen.
  static constexpr int kSignaledEvery = 8;

  MemoryBook memory_;
  PeeringInfo remote_;
  Imported remotePool_{};
  std::vector<Work> eagerWrites_;  // of each lane from each slot, but for the length
  EagerSender eagerOut_{*this};
  EagerReceiver eagerIn_;
  EarlyMessages early_;
  std::vector<mem::Block> rings_;  // of comms that are gone; has room for all that were ever taken
  size_t ringsTaken_ = 0;          // from the arena
  struct Resting {
    mem::Block staging;
    TimePoint since;
  };
  std::vector<Resting> resting_;  // oldest first
  Gathering gathering_;
};

}  // namespace weft::core
