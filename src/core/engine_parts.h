// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/base/pool.h"
#include "src/core/budget.h"
#include "src/core/engine_options.h"
#include "src/core/request.h"
#include "src/core/sequence.h"
#include "src/mem/arena.h"
#include "src/mem/heap.h"

// What all that stands on one engine shares: its rails, its memory, requests and slots, the time of the poll
// pass, and what is due in the next ones. Knows no peering and no comm beyond their names. The base of
// Engine; used only by who has entered that, but for what is const.
namespace weft::core {

class Peering;

class EngineParts {
 public:
  EngineParts(const EngineParts&) = delete;
  EngineParts& operator=(const EngineParts&) = delete;

  uint32_t id() const { return id_; }  // unique in the process, never reused
  const Config& config() const { return *options_.config; }
  const Clock& clock() const { return *options_.clock; }  // for waiting, outside of the engine
  const std::string& deviceName() const { return options_.deviceName; }
  const SequenceSpace& sequences() const { return sequences_; }
  mem::Arena& arena() { return arena_; }
  mem::Heap& earlyMemory() { return earlyMemory_; }  // of messages that came before their receive
  mem::RegionCache& regions() { return *options_.regions; }
  WindowPool* windows() const { return options_.windows; }
  stats::RailSums* rails() const { return options_.rails; }   // null: nobody wants them
  stats::StatsFile* stats() const { return options_.stats; }  // null: switched off
  Budget& budget() { return budget_; }
  EngineCounters& counters() { return counters_; }

  // Rails:
  size_t railCount() const { return options_.devices.size(); }
  Queue& queue(size_t rail) { return *queues_[rail]; }
  const DeviceInfo& railInfo(size_t rail) const { return rails_[rail].device->info(); }
  // The rail itself, or the one that stands in for a rail whose card could not be used.
  size_t railInUse(size_t rail) const { return railInUse_[rail]; }
  Result<std::unique_ptr<Endpoint>> openEndpoint(size_t rail);  // a rail that refuses has lost its card
  bool hasLocal() const { return options_.local != nullptr; }   // peers may be reached through shared memory
  size_t localRail() const { return railCount(); }
  Result<std::unique_ptr<Endpoint>> openLocalEndpoint();
  int eagerMax() const { return eagerMax_; }           // bytes; 0: nothing leaves eagerly
  bool gathersEager() const { return gathersEager_; }  // small messages that follow each other leave together

  // The pass:
  // When this pass began, or something in it first asked: a pass that finds nothing reads no clock.
  TimePoint now() {
    if (!nowIsFresh_) readClock();
    return now_;
  }
  TimePoint readNow() {  // for what is rare, and happens outside of passes too
    readClock();
    return now_;
  }
  TimePoint lately() const { return now_; }  // when somebody last asked: at least at every watch()
  uint64_t pass() const { return pass_; }
  // Something is to happen in one of the next passes, whatever they find.
  bool waitsForPasses() const { return due_ != UINT64_MAX; }
  bool isDue() const { return due_ <= pass_; }
  void wantAfterPoll() {  // peerings have something to do once the queues were polled
    wantsAfterPoll_ = true;
    due_ = 0;
  }
  void ctsDueAt(uint64_t pass) {  // CTS are to be written from that pass on
    ctsDue_ = std::min(ctsDue_, pass);
    due_ = std::min(due_, pass);
  }
  void flushSoon() { due_ = 0; }       // some lane has works to hand over
  void queueFlush(Peering* peering) {  // has works to hand to the fabric
    flushQueue_.push_back(peering);
    due_ = 0;
  }
  void dropFlush(Peering* peering) { std::erase(flushQueue_, peering); }

  // Requests and slots of receives:
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
  // For who is not inside; any thread. Given back, or dropped with its comm, inside.
  PutOffFlush* takePutOff(CommBase* comm, mem::RegionRef region, uint64_t offset);
  void givePutOff(PutOffFlush* flush);
  void dropPutOffs(const CommBase* comm);
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
  ReceiveSlot* takeSlot() { return slots_.take(); }  // nullptr: none left
  void giveSlot(ReceiveSlot* slot) {
    slot->state = SlotState::free;
    slot->comm = nullptr;
    slot->generation = (slot->generation + 1) % kGenerations;
    slots_.give(slot);
  }
  bool hasSlot(uint32_t index) const { return slots_.contains(index); }
  ReceiveSlot& slot(uint32_t index) { return slots_[index]; }

 protected:
  explicit EngineParts(EngineOptions options);
  ~EngineParts() = default;

  Status openQueues(Placer* placer);
  void readClock();

  EngineOptions options_;
  uint32_t id_;
  SequenceSpace sequences_;
  mem::Arena arena_;       // before the rails: blocks are registered with their devices
  mem::Heap earlyMemory_;  // likewise
  std::vector<RailUse> rails_;
  std::vector<Queue*> queues_;  // of rails_
  Queue* onlyQueue_ = nullptr;  // where there are no others
  bool cardLost_ = false;       // a fact about the card: the engine serves its comms, and gets no new ones
  Pool<Request> requests_;
  Pool<ReceiveSlot, 256> slots_;
  std::mutex putOffMutex_;  // for moments
  Pool<PutOffFlush, 8> putOffs_;
  Budget budget_;
  EngineCounters counters_;
  TimePoint now_{};
  bool nowIsFresh_ = false;
  bool wantsAfterPoll_ = false;
  uint64_t pass_ = 0;
  uint64_t ctsDue_ = UINT64_MAX;      // from which pass a CTS is
  uint64_t due_ = UINT64_MAX;         // and anything beside polling
  std::vector<Peering*> flushQueue_;  // with room for all peerings

 private:
  PutOffFlush* putOffOf(const CommBase* comm);  // one of them
  void decideEager();
  void shareOut(const std::vector<uint8_t>& working);  // rails without a queue get one that stands in

  std::vector<uint8_t> railInUse_;
  int eagerMax_ = 0;
  bool gathersEager_ = false;
};

}  // namespace weft::core
