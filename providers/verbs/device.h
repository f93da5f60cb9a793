// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "providers/verbs/dialer.h"
#include "providers/verbs/ports.h"
#include "providers/verbs/watcher.h"
#include "weft/transport.h"

// A port, opened: its context and protection domain, and the two helper threads. Thread-safe.
namespace weft::verbs {

class VerbsDevice : public Device {
 public:
  static Result<std::shared_ptr<Device>> open(std::shared_ptr<const Library> library, const Port& port,
                                              const Clock& clock);

  const DeviceInfo& info() const override { return port_.info; }
  Result<std::unique_ptr<Memory>> registerMemory(const MemoryDesc& desc) override;
  Result<std::unique_ptr<Queue>> openQueue(const QueueDepths& wanted) override;

  // For this provider's own Queues.
  const std::shared_ptr<const Library>& library() const { return library_; }
  const Port& port() const { return port_; }
  const Clock& clock() const { return clock_; }
  std::shared_ptr<const PortAddress> address() const;  // for its queue pairs to announce now
  ibv_context* context() const { return context_.get(); }
  ibv_pd* pd() const { return pd_.get(); }
  Dialer& dialer() { return dialer_; }

  // Events of the port go to the mailbox of every listener, and those that concern a single completion
  // or receive queue to its owner only.
  struct Listener {
    std::shared_ptr<Mailbox> mailbox;
    const ibv_cq* cq = nullptr;
    const ibv_srq* srq = nullptr;
  };
  void listen(const Listener& listener);
  void forget(const Mailbox* mailbox);

  VerbsDevice(std::shared_ptr<const Library> library, const Port& port, const Clock& clock)
      : library_(std::move(library)),
        port_(port),
        clock_(clock),
        address_(std::make_shared<const PortAddress>(port.address)),
        dialer_(clock) {}

 private:
  Status start();
  void happened(const ibv_async_event& event);
  void readAddress();
  void announce(PortAddress address);
  void tell(const QueueEvent& event, const ibv_cq* cq = nullptr, const ibv_srq* srq = nullptr);

  // Teardown is in reverse order.
  const std::shared_ptr<const Library> library_;
  const Port port_;
  const Clock& clock_;
  Handle<ibv_context> context_{nullptr, nullptr};
  Handle<ibv_pd> pd_{nullptr, nullptr};
  std::mutex reading_;  // from reading what the port is reached by until it is announced; before mutex_
  mutable std::mutex mutex_;
  std::shared_ptr<const PortAddress> address_;
  std::vector<Listener> listeners_;
  Dialer dialer_;
  Watcher watcher_;
};

}  // namespace weft::verbs
