// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "providers/common/rare_events.h"
#include "providers/verbs/device.h"
#include "providers/verbs/lane_table.h"
#include "providers/verbs/leaving_pairs.h"
#include "providers/verbs/receives.h"
#include "src/base/clock.h"
#include "weft/transport.h"

// A completion queue and a shared receive queue for all lanes of an engine. A single thread at a time uses
// it. An entry of the card's completion queue may stand for many works (SendQueue), so a poll hands out all
// works of an entry before it looks at the next entry.
namespace weft::verbs {

class SendQueue;
class VerbsEndpoint;

class VerbsQueue : public Queue {
 public:
  static Result<std::unique_ptr<Queue>> create(VerbsDevice& device, const QueueDepths& wanted);
  ~VerbsQueue() override;

  size_t poll(std::span<Completion> out) override;
  Result<std::unique_ptr<Endpoint>> openEndpoint() override;
  std::string explain(const Completion& completion) const override;
  QueueDepths depths() const override { return depths_; }

  // For this provider's Endpoints.
  VerbsDevice& device() const { return device_; }
  const Settings& settings() const { return device_.port().settings; }
  const std::shared_ptr<QueueObjects>& objects() const { return objects_; }
  const std::shared_ptr<Mailbox>& mailbox() const { return mailbox_; }
  size_t room() const { return room_; }  // requests that may still be posted on all lanes
  // False: the Queue runs short of room.
  bool roomy() const { return room_ > depths_.sends / 2; }
  void take(size_t requests) { room_ -= requests; }
  void give(size_t requests) { room_ += requests; }
  uint32_t laneDepth() const;  // requests that a lane's first queue pair may have outstanding
  uint64_t newNumber() { return nextNumber_++; }
  void add(uint32_t queuePair, SendQueue* sender) { senders_.insert(queuePair, sender); }
  void forget(SendQueue* sender);  // the SendQueue is being destroyed
  // The queue pair of a lane that is being destroyed.
  void letGo(std::shared_ptr<QueuePair> pair, size_t requests);
  void forget(VerbsEndpoint* lane);    // the lane is being destroyed
  void progress(VerbsEndpoint* lane);  // asks for progress() from the next poll on
  void report(const Completion& completion, std::string why = {});  // a later poll hands it out
  // Words for a completion of the running poll.
  void explainNow(const Completion& completion, std::string why);

  VerbsQueue(VerbsDevice& device, const QueueDepths& wanted);

 private:
  static constexpr int kBatch = 32;
  // Entries beside the caller's works and notifications: fence markers, for each queue pair of a lane, and
  // the receives that batches round up to.
  static constexpr uint32_t kOwnEntries = 256;

  Status start();
  // Receives that a notification may consume.
  uint32_t perNotification() const { return settings().apart == Apart::never ? 1 : 2; }
  Status openCompletionQueue();
  Status openReceiveQueue();
  size_t readCompletions(std::span<Completion> out);
  bool nextEntry();
  bool handle(const ibv_wc& entry, Completion* out);
  bool arrived(const ibv_wc& entry, Completion* out);
  void readMail();
  void open(const QueueEvent& event);
  void passOn(const QueueEvent& event);
  void tookLast(uint32_t queuePair);
  void failed(int error, const std::string& why);
  void progressLanes();

  VerbsDevice& device_;
  QueueDepths depths_;
  size_t room_;
  uint64_t nextNumber_ = 1;
  const std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
  std::shared_ptr<QueueObjects> objects_;
  Receives receives_;
  LaneTable<SendQueue> senders_;
  LeavingPairs leaving_;  // queue pairs whose lane is gone

  std::array<ibv_wc, kBatch> entries_;
  int next_ = 0;                    // the next of entries_ to handle
  int filled_ = 0;                  // entries_ that are filled
  SendQueue* unfolding_ = nullptr;  // the SendQueue that has more to hand out for the last entry

  std::vector<VerbsEndpoint*> pending_;  // lanes that want progress()
  RareEvents events_;
};

}  // namespace weft::verbs
