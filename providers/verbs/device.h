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

// A port, opened: its context, its protection domain, and two helper threads (Watcher, Dialer). Queues and
// Memory must go before it. Thread-safe.
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
  std::shared_ptr<const PortAddress> address() const;  // the address that queue pairs announce now
  std::string portDown() const;                        // why nothing passes the port now; empty: it is up
  ibv_context* context() const { return context_.get(); }
  ibv_pd* pd() const { return pd_.get(); }
  Dialer& dialer() { return dialer_; }

  // Events of the port go to the mailbox of every listener. Events of a single completion or receive queue go
  // to its owner only.
  struct Listener {
    std::shared_ptr<Mailbox> mailbox;
    const ibv_cq* cq = nullptr;
    const ibv_srq* srq = nullptr;
  };
  // Before the first Endpoint; forget() comes before the mailbox's owner ends.
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
  void portWent(const std::string& down);
  void readAddress();
  Result<PortAddress> readSettled(const PortAddress& before) const;
  std::shared_ptr<const PortAddress> announce(PortAddress address);
  void tell(const QueueEvent& event, const ibv_cq* cq = nullptr, const ibv_srq* srq = nullptr);

  // Members are destroyed in reverse order: the threads first, the context last.
  const std::shared_ptr<const Library> library_;
  const Port port_;
  const Clock& clock_;
  Handle<ibv_context> context_{nullptr, nullptr};
  Handle<ibv_pd> pd_{nullptr, nullptr};
  std::mutex reading_;  // held from reading the port's address until it is announced; taken before mutex_
  mutable std::mutex mutex_;  // guards the next three
  std::shared_ptr<const PortAddress> address_;
  std::string portDown_;
  std::vector<Listener> listeners_;
  Dialer dialer_;
  Watcher watcher_;
};

}  // namespace weft::verbs
