// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "src/core/comm_table.h"
#include "src/core/connect_hold.h"
#include "src/core/engine_parts.h"
#include "src/core/flush_lanes.h"
#include "src/core/path_owner.h"
#include "src/core/peering.h"
#include "src/core/wait_watch.h"
#include "src/core/work_context.h"

// The unit of progress: one Queue per rail, and every comm that the ranks of one seat made on one device.
// Whoever has entered it owns everything in it; entering is one atomic, tried once on the data path ("not
// now" otherwise), so no thread ever waits for another there. Service calls (register, close, connect) wait
// their turn, which is microseconds.
namespace weft::core {

class Engine final : public EngineParts, private Placer, private PathOwner {
 public:
  static Result<std::shared_ptr<Engine>> create(EngineOptions options);
  explicit Engine(EngineOptions options);
  ~Engine();

  bool wornOut();  // no comms, and a card lost: one made anew may have it back; any thread

  // Entering:
  bool tryEnter() {  // data path and control thread
    uint32_t seen = 0;
    if (!door_.compare_exchange_strong(seen, kInside, std::memory_order_acquire)) [[unlikely]]
      return tryEnterAsked(seen);
    called_.store(true, std::memory_order_relaxed);
    return true;
  }
  void enterWaiting();  // service calls
  void leave() {
    if (--door_ != 0) [[unlikely]]
      handleMail();
  }
  // Whether somebody has entered since the last question. Only the control thread asks.
  bool takeCalled() {
    const bool called = called_.load(std::memory_order_relaxed);
    called_.store(false, std::memory_order_relaxed);
    return called;
  }

  // Messages from peers' engines (any thread):
  struct Mail {
    control::PeerRef peer;
    MessageType type{};
    EngineHeader header;
    Bytes body;
    bool peerDied = false;
    std::string reason;
  };
  void deliver(Mail mail);  // handled by whoever enters or leaves next; at once if nobody is inside

  // Everything below only inside:
  // One poll pass: completions, CTS, credits, bursts. Most find nothing, so that costs a call a rail; one
  // that finds something mostly found what its caller waits for: the other rails come first in the next.
  void progress() {
    constexpr int kMostBatches = 8;  // then other comms' callers get their turn
    pass_++;
    nowIsFresh_ = false;
    bool polledAll = true;
    if (onlyQueue_) [[likely]] {
      pollRail(0, *onlyQueue_, kMostBatches);
    } else {
      polledAll = pollSeveral(kMostBatches);
    }
    if (isDue()) [[unlikely]]
      finishPass(polledAll);
  }
  void flush() {  // hands queued bursts to the fabric
    if (isDue()) flushQueued();
  }
  bool tickBusy();  // something is outstanding here; asked by the control thread, once a tick
  void watch();     // looks for what waits too long; called now and then
  void tellWait(const Culprit& culprit);  // to all peers, where it is news
  void waitsFollowFrom(const std::string& peer) { waits_.noteFailure(peer, readNow()); }
  const WaitWatch& waits() const { return waits_; }
  std::string stateText();  // of all that is here; waits for its turn

  Result<Peering*> peering(const control::PeerRef& peer, uint32_t remoteEngine, uint16_t remoteRails,
                           uint32_t remoteLife = 0);  // of its half; 0: not known yet
  Peering* peeringByNumber(uint32_t number) {
    return number < peerings_.size() ? peerings_[number].get() : nullptr;
  }

  uint32_t addComm(CommBase* comm);  // its number, for the peer
  void removeComm(uint32_t number);
  template <class Visit>
  void eachComm(Visit visit) {
    comms_.each(visit);
  }
  void queueCtsWriter(RecvCommImpl* comm) {  // has CTS to write
    if (ctsWriters_.size() == ctsWriters_.capacity()) [[unlikely]]
      growCtsWriters();
    ctsWriters_.push_back(comm);
  }
  void close(CommBase* comm);                       // begins, and goes on with each pass until it is over
  void closeOwned(std::unique_ptr<CommBase> comm);  // likewise; it is the engine's until takeClosed()
  // Those of the engine's that are over, to be freed outside of it: giving memory back can take long.
  std::vector<std::unique_ptr<CommBase>> takeClosed();
  bool passClosing();  // from outside: a pass, where it owns such comms; false: it owns none any more
  FlushLanes& flushLanes() { return flushLanes_; }
  void cleanUpPeerings();
  ConnectHold connecting;  // begun inside

  // PathOwner, for peerings and flush lanes:
  void endComms(const Peering& peering, const Ending& ending) override;
  void endComm(const Request& request, const Ending& ending) override;
  size_t openComms(const Peering& peering) const override;
  void tellCts(const Peering& peering, uint8_t lane) override;
  bool belongsTo(const ReceiveSlot& slot, const Peering& peering, uint32_t comm) const override;
  void eachSendOn(const Peering& peering, const SendVisit& visit) override;
  void resolve(Request* request, uint16_t segments, uint16_t missing) override;
  void drain(size_t rail) override;
  [[gnu::noinline]] void flushQueued() override;
  bool carries(size_t rail) const override;

 private:
  // One word says whether somebody is inside, whether mail waits to be handled, and how many service calls
  // wait for their turn: while it is zero, entering is one step, and so is leaving.
  static constexpr uint32_t kInside = 1;
  static constexpr uint32_t kMailWaits = 2;
  static constexpr uint32_t kCallWaits = 4;

  bool hasMail() const { return (door_.load(std::memory_order_seq_cst) & kMailWaits) != 0; }
  [[gnu::noinline]] bool tryEnterAsked(uint32_t seen);
  [[gnu::noinline]] void handleMail();
  [[gnu::noinline]] void finishPass(bool polledAll);
  [[gnu::cold]] void growCtsWriters();
  void writeAllCts();
  [[gnu::cold]] void lookAtWaits();
  [[gnu::cold]] void stepClosing();
  [[gnu::noinline]] bool pollSeveral(int mostBatches);  // false: not all of them
  void pollRail(size_t rail, Queue& queue, int mostBatches) {
    const size_t n = queue.poll(completions_);
    if (n > 0) handOut(rail, n, mostBatches);
  }
  // What a poll found; mostly one. A pass within would poll into the same array.
  void handOut(size_t rail, size_t n, int mostBatches) {
    const HandingOut now(*this);
    if (n == 1) {
      dispatchEach(rail, {completions_.data(), 1});
    } else {
      dispatchAll(rail, n, mostBatches);
    }
  }
  class HandingOut {
   public:
    explicit HandingOut(Engine& engine) : engine_(engine) {
      assert(!std::exchange(engine_.handingOut_, true));
    }
    ~HandingOut() { assert(std::exchange(engine_.handingOut_, false)); }
    HandingOut(const HandingOut&) = delete;
    HandingOut& operator=(const HandingOut&) = delete;

   private:
    [[maybe_unused]] Engine& engine_;
  };
  // Where memory runs out the next poll goes on: engine_lack.cc.
  struct Rest {
    ~Rest() {
      if (!found.empty()) engine.keep(rail, found);
    }
    Engine& engine;
    size_t rail;
    std::span<const Completion> found;
  };
  void dispatchEach(size_t rail, std::span<const Completion> found) {
    for (Rest rest{*this, rail, found}; !rest.found.empty(); rest.found = rest.found.subspan(1))
      dispatch(rail, rest.found.front());
  }
  [[gnu::cold]] void keep(size_t rail, std::span<const Completion> rest);
  [[gnu::cold]] void handOutKept();
  [[gnu::cold]] CommBase* commOf(const Completion& completion);
  [[gnu::cold]] CommBase* commOf(ReceivedNote note);
  [[gnu::cold]] CommBase* commOfLanded(uint64_t context);
  void dispatch(size_t rail, const Completion& completion) {
    if (completion.kind == CompletionKind::notified) return onNotified(completion);
    if (completion.kind == CompletionKind::sent && completion.ok) [[likely]]
      return onSent(completion);
    if (completion.kind == CompletionKind::landed) return onLanded(completion);
    onRare(rail, completion);
  }
  [[gnu::noinline]] void dispatchAll(size_t rail, size_t n, int mostBatches);
  [[gnu::cold]] void afterPoll();
  void drainMail();
  void handle(Mail& mail);
  void readAllFrom(const Peering& peering);
  void handlePeerDeath(const Mail& mail);
  void handleEngineGone(const Mail& mail);
  void answerAsked(const Mail& mail);
  void handleForPeering(Peering& peering, const Mail& mail);
  void handleForComm(const Mail& mail);
  void answerStray(const Mail& mail) const;
  void endIdlePeerings();
  Peering* livePeering(const control::Peer* peer, uint32_t remoteEngine);
  Peering* peeringOf(const Mail& mail);

  [[gnu::noinline]] void onNotified(const Completion& completion);
  [[gnu::noinline]] void onSent(const Completion& completion);
  [[gnu::cold]] void onRare(size_t rail, const Completion& completion);
  [[gnu::cold]] void onFailed(size_t rail, const Completion& completion);
  Peering* asideFinished(const Completion& completion);
  [[gnu::noinline]] void landed(const Completion& completion);
  Place place(Endpoint& at, const MessageLabel& label, uint64_t length, bool mayWait) override;
  [[gnu::noinline]] void onLanded(const Completion& completion);
  [[gnu::noinline]] void onEager(uint32_t number, const Completion& completion);
  [[gnu::cold]] void onLaneEvent(size_t rail, const Completion& completion);
  bool cutOff(Peering& owner, Lane& lane, const std::string& why);
  LaneSet* findLane(const Endpoint* endpoint, Lane** lane, Peering** owner);  // the set it is in
  void onSameHost(const Completion& completion, const std::string& why);
  void finishSegment(const Completion& completion);
  [[gnu::cold]] void finishStray(const Completion& completion);

  std::atomic<uint32_t> door_{0};
  std::atomic<bool> called_{false};
  size_t railTurn_ = 0;                             // the one to poll next
  std::vector<std::unique_ptr<Peering>> peerings_;  // by number; null where one was dropped
  FlushLanes flushLanes_{*this, *this};
  CommTable comms_;
  std::vector<RecvCommImpl*> ctsWriters_;
  std::vector<CommBase*> closing_;                // owned by those who wait for it, or by us:
  std::vector<std::unique_ptr<CommBase>> owned_;  // whose owners did not wait (giveBack)
  std::array<Completion, 32> completions_;        // of the poll that runs; to fill it afresh costs more
  struct Kept {
    size_t rail;
    Completion completion;
  };
  std::vector<Kept> kept_;  // what was found and is not handed out
  TimePoint commsWatchedAt_{};
  WaitWatch waits_;
  uint32_t lives_ = 0;                        // peerings made so far
  [[maybe_unused]] bool handingOut_ = false;  // only debug builds look
  std::mutex mailMutex_;
  std::vector<Mail> mail_;
};

}  // namespace weft::core
