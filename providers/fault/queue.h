// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "providers/fault/device.h"
#include "providers/fault/ledger.h"
#include "weft/transport.h"

// The Queue decorator: every work and every completion passes here, and rules decide what becomes of them.
// Fencing stays a promise: before `retired` is reported everything held back was dropped or landed. One
// owner thread.
namespace weft::fault {

class FaultEndpoint;

class FaultQueue final : public Queue, private Placer {
 public:
  FaultQueue(FaultDevice& device, std::unique_ptr<Queue> inner);

  size_t poll(std::span<Completion> out) override;
  Result<std::unique_ptr<Endpoint>> openEndpoint() override;
  std::string explain(const Completion& completion) const override;
  void placeBy(Placer* placer) override;
  QueueDepths depths() const override { return depths_; }

  // For its Endpoints.
  Shared& shared() { return device_.shared(); }
  PollCount polls() const { return polls_; }
  void refresh();  // takes over changed rules
  void complete(const Completion& completion);
  bool submit(FaultEndpoint& lane, const Work& work);  // false: later
  void pump();                                         // posts what is held and due
  void fence(FaultEndpoint& lane);
  void detach(FaultEndpoint& lane);

 private:
  struct Delayed {
    Completion completion;
    uint32_t polls = 0;
  };

  // inject.cc: what rules do to works
  RuleState* decide(FaultOp op, const Where& where, size_t length, const Work* work);
  bool applies(const FaultRule& rule, const Work& work) const;
  void record(RuleState& hit, size_t works, uint64_t bytes);
  void undo();
  bool forward(FaultEndpoint& lane, const Work& work);
  bool inject(FaultEndpoint& lane, const Work& work, RuleState& hit);
  void hold(FaultEndpoint& lane, const Work& work, const FaultRule& rule);
  void duplicate(FaultEndpoint& lane, const Work& work, uint32_t polls);
  bool early(FaultEndpoint& lane, const Work& work, uint32_t polls);
  void corrupt(FaultEndpoint& lane, const Work& work);
  void doom(FaultEndpoint& lane, const FaultRule& rule);
  void park(FaultEndpoint& lane, const Work& work);
  void kill(FaultEndpoint& lane);
  void killHeld(FaultEndpoint& lane, uint32_t index);
  void killIdle();
  void overtake(const FaultEndpoint& lane);

  // queue.cc: completions
  Place place(Endpoint& at, const MessageLabel& label, uint64_t length, bool mayWait) override;
  void tick();
  bool due(Entry& entry) const;
  bool postHeld(uint32_t index);
  void release(uint32_t index);
  void translate(Completion completion);
  void translateNotified(const Completion& completion);
  void translateRetired(FaultEndpoint& lane, const Completion& inner);
  void tellRetired(FaultEndpoint& lane);
  void innerEnded(uint32_t index, const Completion& inner);
  void settle(uint32_t index, const Completion& inner);
  bool swallow(uint32_t index, Completion& completion);
  void tell(uint32_t index, int error);
  void tellAll(FaultEndpoint& lane);
  FaultEndpoint* laneOf(const Endpoint* inner) const;
  size_t emit(std::span<Completion> out);

  FaultDevice& device_;
  const std::unique_ptr<Queue> inner_;
  const QueueDepths depths_;
  const PollCount polls_;
  std::vector<FaultEndpoint*> lanes_;
  Placer* placer_ = nullptr;  // the user's

  uint64_t rulesVersion_ = ~uint64_t{0};
  Rules rules_;                      // those about works and completions of this Device
  std::vector<RuleState*> counted_;  // by the last decide

  Ledger ledger_;
  std::vector<uint32_t> held_;  // in the order they were posted
  uint64_t corrupted_ = 0;      // works so far
  std::vector<Delayed> delayed_;
  std::vector<Completion> ready_;  // [readyFront_, end)
  size_t readyFront_ = 0;
  size_t readySent_ = 0;
  std::vector<Completion> scratch_;
  // Of the last poll: as reported, as the inner one said.
  std::vector<std::pair<Completion, Completion>> failures_;
};

}  // namespace weft::fault
