// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "providers/loop/device.h"
#include "providers/loop/fabric.h"
#include "src/base/random.h"
#include "weft/transport.h"

// A Queue of the in-process fabric. As a target it lands what its peers put into its inbox; as a sender it
// keeps track of the works it put into theirs. A single owner thread for everything here; only the Inbox is
// touched by others. Nothing allocates after warm-up, nothing locks.
namespace weft::loop {

class LoopEndpoint;

class LoopQueue : public Queue {
 public:
  LoopQueue(LoopDevice& device, const QueueDepths& depths);
  ~LoopQueue() override;

  size_t poll(std::span<Completion> out) override;
  Result<std::unique_ptr<Endpoint>> openEndpoint() override;
  std::string explain(const Completion& completion) const override;
  void placeBy(Placer* placer) override { placer_ = placer; }
  QueueDepths depths() const override { return depths_; }

  // For its Endpoints.
  LoopDevice& device() { return device_; }
  std::shared_ptr<Inbox> inbox() { return inbox_; }
  bool hasRoom() const { return outstanding_.size() + readySent_ < depths_.sends; }
  void complete(const Completion& completion);
  // Hands a work over to the target's poll; false when its inbox is full.
  bool dispatch(LoopEndpoint& endpoint, const Work& work, const Port& target);
  // Takes back what has not landed; what was not reported yet completes with `error`.
  void cancel(const LoopEndpoint& endpoint, int error);
  void detach(LoopEndpoint& endpoint);

 private:
  struct Outstanding {
    uint32_t slot = 0;
    LoopEndpoint* endpoint = nullptr;
    uint64_t context = 0;
    bool unsignaled = false;
    bool early = false;     // completes before it lands
    bool reported = false;  // its completion is in ready_ or was handed out
    bool over = false;      // to be swept
    TimePoint tells{};      // it does not complete before
  };

  void takeArrivals();
  bool isDue(TimePoint when) const { return !device_.card() || when <= device_.card()->now(); }
  TimePoint schedule(const Work& work, const Port& target, Outstanding* taken) const;
  void tellSender(const Arrival& arrival) const;
  void land();
  void landOne(Arrival& arrival);
  bool placeClaimed(const Arrival& arrival);
  bool place(const Arrival& arrival);
  void refuse(Transfer& transfer, LoopEndpoint* endpoint, const char* why);
  void finish(const Arrival& arrival);
  void finishMessage(const Arrival& arrival, uint64_t context);
  bool isEarly(const Work& work) const;
  void stage(Transfer& transfer);
  void fill(Transfer& transfer, const Work& work);
  void collect();
  void settle(Outstanding& work);
  void settleFailed(Outstanding& work, int error);
  void tell(Outstanding& work, int error);
  void close(Outstanding& work);
  void sweep();
  LoopEndpoint* endpointOf(uint64_t port) const;
  size_t emit(std::span<Completion> out);

  LoopDevice& device_;
  const QueueDepths depths_;
  const std::shared_ptr<Inbox> inbox_;
  const std::shared_ptr<Outbox> outbox_;
  SeededRandom random_;
  Placer* placer_ = nullptr;  // who says where messages land; null: none may come
  const char* refusal_ = "";  // of the last message that could not be placed
  std::vector<LoopEndpoint*> endpoints_;

  std::vector<uint32_t> freeSlots_;
  std::vector<Outstanding> outstanding_;  // in posted order

  std::vector<Arrival> incoming_;  // [front_, end) still to land
  size_t front_ = 0;
  int64_t byteCredit_ = 0;
  int64_t bytesPerPoll_ = 0;  // 0: unlimited

  std::vector<Completion> ready_;  // [readyFront_, end) to hand out
  size_t readyFront_ = 0;
  size_t readySent_ = 0;  // how many of them are `sent`
};

}  // namespace weft::loop
