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

// All lanes of one engine to processes of this host. Polling it is all that moves data, and no poll makes a
// system call but to copy a large write, or to look now and then whether peers live. One thread at a time.
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
  bool hasRoom() const { return works_ < depths_.sends; }
  void workPosted() { works_++; }
  void workGone() { works_--; }
  // Handed out when nothing that came before is left.
  void report(const Completion& completion, std::string why = {});
  void attend(LocalEndpoint* lane);  // from the next poll on, until it wants no more
  void forget(LocalEndpoint* lane);

 private:
  void look();

  LocalDevice& device_;
  const std::shared_ptr<KeyTable> table_;
  const QueueDepths depths_;
  size_t works_ = 0;  // posted, and not yet landed or forgotten
  std::vector<LocalEndpoint*> lanes_;
  std::vector<LocalEndpoint*> pending_;  // of them, those that connect or retire
  size_t turn_ = 0;                      // the lane that comes first in the next poll
  uint32_t polls_ = 0;                   // since the clock was read
  TimePoint lookedAt_{};
  RareEvents events_;
};

}  // namespace weft::local
