// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "providers/common/rare_events.h"
#include "providers/local/device.h"
#include "src/base/clock.h"
#include "weft/transport.h"

// All lanes of an engine to processes of this host. Only polling moves data. A poll makes no system call but
// to look now and then whether peers live, and where GPU memory is copied. The engine owns it; one thread at
// a time.
namespace weft::local {

class LocalEndpoint;

class LocalQueue : public Queue {
 public:
  LocalQueue(LocalDevice& device, const QueueDepths& wanted);

  size_t poll(std::span<Completion> out) override;
  Result<std::unique_ptr<Endpoint>> openEndpoint() override;
  std::string explain(const Completion& completion) const override;
  QueueDepths depths() const override { return depths_; }

  // For its lanes.
  LocalDevice& device() const { return device_; }
  KeyTable& table() const { return *table_; }
  bool hasRoom() const { return works_ < depths_.sends; }  // the caller's limit on works in flight
  void workPosted() { works_++; }
  void workGone() { works_--; }
  // Handed out by a poll when nothing that came before is left.
  void report(const Completion& completion, std::string why = {});
  void attend(LocalEndpoint* lane);  // from the next poll on, until the lane has nothing more to do
  void forget(LocalEndpoint* lane);

 private:
  void look();

  LocalDevice& device_;
  const std::shared_ptr<KeyTable> table_;
  const QueueDepths depths_;
  size_t works_ = 0;  // works posted, and neither landed nor failed
  std::vector<LocalEndpoint*> lanes_;
  std::vector<LocalEndpoint*> pending_;  // of them: lanes that connect, fence, or have copies to wait for
  size_t turn_ = 0;                      // the lane that comes first in the next poll
  uint32_t polls_ = 0;                   // polls since the clock was read
  TimePoint lookedAt_{};
  RareEvents events_;
};

}  // namespace weft::local
