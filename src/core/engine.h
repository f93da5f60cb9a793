// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "src/base/pool.h"
#include "src/core/budget.h"
#include "src/core/comm_table.h"
#include "src/core/connect_hold.h"
#include "src/core/engine_options.h"
#include "src/core/flush_lanes.h"
#include "src/core/peering.h"
#include "src/core/request.h"
#include "src/core/sequence.h"
#include "src/core/wait_watch.h"
#include "src/core/work_context.h"
#include "src/mem/arena.h"

// The unit of progress: one Queue per rail, and every comm that the ranks of one seat made on one device.
// Whoever has entered it owns everything in it; entering is one atomic, tried once on the data path ("not
// now" otherwise), so no thread ever waits for another there. Service calls (register, close, connect) wait
// their turn, which is microseconds.
namespace weft::core {

class Engine final : private Placer {
 public:
  static Result<std::shared_ptr<Engine>> create(EngineOptions options);
  explicit Engine(EngineOptions options);
  ~Engine();

  uint32_t id() const { return id_; }  // unique in the process, never reused
  const Config& config() const { return *options_.config; }
  const Clock& clock() const { return *options_.clock; }  // for waiting, outside of it
  const std::string& deviceName() const { return options_.deviceName; }
  int eagerMax() const { return eagerMax_; }           // bytes; 0: nothing leaves eagerly
  bool gathersEager() const { return gathersEager_; }  // small messages that follow each other leave together
  const SequenceSpace& sequences() const { return sequences_; }
  size_t railCount() const { return options_.devices.size(); }
  Queue& queue(size_t rail) { return *queues_[rail]; }
  Result<std::unique_ptr<Endpoint>> openEndpoint(size_t rail);  // a rail that refuses has lost its card
  bool hasLocal() const { return options_.local != nullptr; }   // peers may be reached through shared memory
  size_t localRail() const { return railCount(); }
  Result<std::unique_ptr<Endpoint>> openLocalEndpoint();
  bool wornOut();  // no comms, and a card lost: one made anew may have it back; any thread
  const DeviceInfo& railInfo(size_t rail) const { return rails_[rail].device->info(); }
  // The rail itself, or the one that stands in for a rail whose card could not be used.
  size_t railInUse(size_t rail) const { return railInUse_[rail]; }
  mem::Arena& arena() { return arena_; }
  WindowPool* windows() const { return options_.windows; }
  stats::RailSums* rails() const { return options_.rails; }   // null: nobody wants them
  stats::StatsFile* stats() const { return options_.stats; }  // null: switched off
  mem::RegionCache& regions() { return *options_.regions; }

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
    if (due_ <= pass_) [[unlikely]]
      finishPass(polledAll);
  }
  void flush() {  // hands queued bursts to the fabric
    if (due_ <= pass_) flushQueued();
  }
  // When this pass began, or something in it first asked: a pass that finds nothing reads no clock.
  TimePoint now() {
    if (!nowIsFresh_) readClock();
    return now_;
  }
  TimePoint readNow() {  // for what is rare, and happens outside of passes too
    readClock();
    return now_;
  }
  // Something is to happen in one of the next passes, whatever they find.
  bool waitsForPasses() const { return due_ != UINT64_MAX; }
  TimePoint lately() const { return now_; }  // when somebody last asked: at least at every watch()
  uint64_t pass() const { return pass_; }
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
  void eachRequest(Visit visit) {  // in use; not for the data path
    for (uint32_t i = 0; i < requests_.size(); i++) {
      if (requests_[i].kind != RequestKind::none) visit(requests_[i]);
    }
  }
  template <class Visit>
  void eachRequestOf(const CommBase* comm, Visit visit) {
    eachRequest([&](Request& request) {
      if (request.comm == comm) visit(request);
    });
  }
  template <class Visit>
  void eachComm(Visit visit) {
    comms_.each(visit);
  }
  void endComms(const Peering& peering, const Ending& ending);
  // For the parts that know requests and slots, but no comms:
  static void endComm(const Request& request, const Ending& ending);
  // The sends that went by a peering, each with its comm's number at the peer.
  void eachSendOn(const Peering& peering, const std::function<void(const Request&, uint32_t)>& visit);
  static void resolve(Request* request, uint16_t segments, uint16_t missing);  // as SendCommImpl::resolve
  void tellCts(const Peering& peering, uint8_t lane);                          // as RecvCommImpl::tellCts
  static bool belongsTo(const ReceiveSlot& slot, const Peering& peering, uint32_t comm);  // the comm's number
  size_t openComms(const Peering& peering) const;  // that have not ended, nor are being closed
  void wantAfterPoll() {  // peerings have something to do once the queues were polled
    wantsAfterPoll_ = true;
    due_ = 0;
  }
  void drain(size_t rail);  // polls until nothing more comes; also from within a completion
  void queueCtsWriter(RecvCommImpl* comm) { ctsWriters_.push_back(comm); }  // has CTS to write
  void ctsDueAt(uint64_t pass) {                                            // one of those, from that pass on
    ctsDue_ = std::min(ctsDue_, pass);
    due_ = std::min(due_, pass);
  }
  void close(CommBase* comm);                       // begins, and goes on with each pass until it is over
  void closeOwned(std::unique_ptr<CommBase> comm);  // likewise; it is the engine's until takeClosed()
  // Those of the engine's that are over, to be freed outside of it: giving memory back can take long.
  std::vector<std::unique_ptr<CommBase>> takeClosed();
  bool passClosing();  // from outside: a pass, where it owns such comms; false: it owns none any more
  void queueFlush(Peering* peering) {  // has works to hand to the fabric
    flushQueue_.push_back(peering);
    due_ = 0;
  }
  void dropFlush(Peering* peering) { std::erase(flushQueue_, peering); }

  Request* takeRequest(RequestKind kind, CommBase* comm) {  // nullptr: none left
    Request* request = requests_.take();
    if (!request) return nullptr;
    request->kind = kind;
    request->reportedFailed = false;
    request->departure = 0;
    request->count = 1;
    request->remaining = 0;
    request->comm = comm;
    return request;
  }
  void giveRequest(Request* request) {
    request->kind = RequestKind::none;
    request->comm = nullptr;
    request->generation++;
    requests_.give(request);
  }
  Request& requestAt(uint32_t index) { return requests_[index]; }
  ReceiveSlot* takeSlot() { return slots_.take(); }  // nullptr: none left
  void giveSlot(ReceiveSlot* slot) {
    slot->state = SlotState::free;
    slot->comm = nullptr;
    slot->generation = (slot->generation + 1) % kGenerations;
    slots_.give(slot);
  }
  bool hasSlot(uint32_t index) const { return slots_.contains(index); }
  ReceiveSlot& slot(uint32_t index) { return slots_[index]; }

  Budget& budget() { return budget_; }

  FlushLanes& flushLanes() { return flushLanes_; }
  void flushSoon() { due_ = 0; }    // some lane has works to hand over
  bool carries(size_t rail) const;  // something may come by this card

  EngineCounters& counters() { return counters_; }
  void cleanUpPeerings();
  ConnectHold connecting;  // begun inside

 private:
  Status openQueues();
  void decideEager();
  void shareOut(const std::vector<uint8_t>& working);  // rails without a queue get one that stands in
  // One word says whether somebody is inside, whether mail waits to be handled, and how many service calls
  // wait for their turn: while it is zero, entering is one step, and so is leaving.
  static constexpr uint32_t kInside = 1;
  static constexpr uint32_t kMailWaits = 2;
  static constexpr uint32_t kCallWaits = 4;

  bool hasMail() const { return (door_.load(std::memory_order_seq_cst) & kMailWaits) != 0; }
  [[gnu::noinline]] bool tryEnterAsked(uint32_t seen);
  [[gnu::noinline]] void handleMail();
  [[gnu::noinline]] void finishPass(bool polledAll);
  [[gnu::noinline]] void flushQueued();
  void writeAllCts();
  [[gnu::cold]] void lookAtWaits();
  [[gnu::cold]] void stepClosing();
  void readClock();
  [[gnu::noinline]] bool pollSeveral(int mostBatches);  // false: not all of them
  void pollRail(size_t rail, Queue& queue, int mostBatches) {
    const size_t n = queue.poll(completions_);
    if (n > 0) handOut(rail, n, mostBatches);
  }
  // What a poll found; mostly one. A pass within would poll into the same array.
  void handOut(size_t rail, size_t n, int mostBatches) {
    assert(!std::exchange(handingOut_, true));
    if (n == 1) {
      dispatch(rail, completions_[0]);
    } else {
      dispatchAll(rail, n, mostBatches);
    }
    assert(std::exchange(handingOut_, false));
  }
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
  EngineOptions options_;
  uint32_t id_;
  SequenceSpace sequences_;
  mem::Arena arena_;  // before the rails: blocks are registered with their devices
  std::vector<RailUse> rails_;
  std::vector<Queue*> queues_;  // of rails_
  Queue* onlyQueue_ = nullptr;  // where there are no others
  size_t railTurn_ = 0;         // the one to poll next
  std::vector<uint8_t> railInUse_;
  std::vector<Peering*> flushQueue_;  // with room for all peerings; before them, as they leave it
  std::vector<std::unique_ptr<Peering>> peerings_;  // by number; null where one was dropped
  Pool<Request> requests_;
  Pool<ReceiveSlot, 256> slots_;
  FlushLanes flushLanes_{*this};
  int eagerMax_ = 0;
  CommTable comms_;
  std::vector<RecvCommImpl*> ctsWriters_;
  std::vector<CommBase*> closing_;                // owned by those who wait for it, or by us:
  std::vector<std::unique_ptr<CommBase>> owned_;  // whose owners did not wait (giveBack)
  uint64_t ctsDue_ = UINT64_MAX;                  // from which pass one of them is
  uint64_t due_ = UINT64_MAX;                     // and anything beside polling
  std::array<Completion, 32> completions_;        // of the poll that runs; to fill it afresh costs more
  Budget budget_;
  TimePoint now_{};
  TimePoint commsWatchedAt_{};
  WaitWatch waits_;
  uint64_t pass_ = 0;
  uint32_t lives_ = 0;  // peerings made so far
  bool nowIsFresh_ = false;
  [[maybe_unused]] bool handingOut_ = false;  // only debug builds look
  bool wantsAfterPoll_ = false;
  bool cardLost_ = false;  // a fact about the card: the engine serves its comms, and gets no new ones
  bool gathersEager_ = false;
  EngineCounters counters_;
  std::mutex mailMutex_;
  std::vector<Mail> mail_;
};

}  // namespace weft::core
