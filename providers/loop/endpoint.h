// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>

#include "providers/common/lane_life.h"
#include "providers/loop/queue.h"
#include "weft/transport.h"

// A lane of the in-process fabric. Owned by its opener, used by the thread that owns its Queue. A work that
// fails breaks the lane: everything unfinished and everything posted later fails too, as on a queue pair in
// its error state. A fence takes no time here: what has not landed is taken back.
namespace weft::loop {

class LoopEndpoint : public Endpoint, private LaneLife::Host {
 public:
  explicit LoopEndpoint(LoopQueue& queue);
  ~LoopEndpoint() override;

  std::span<const std::byte> address() const override { return address_; }
  Status connect(std::span<const std::byte> peerAddress) override;
  Result<RemoteMemory> import(std::span<const std::byte> blob) override;
  size_t post(std::span<const Work> works) override;
  void peerConnected() override;
  void retire() override;

  const Port& port() const { return *port_; }
  // From the Queue.
  void workFailed() { life_.apply(LaneEvent::workFailed, ECANCELED, "a work failed"); }
  void broke(int error);

 private:
  void finishIfKnown();
  void finishConnecting(int error);
  bool take(const Work& work);
  int check(const Work& work) const;
  bool landNow(const Work& work);
  int copyNow(const Work& work);
  void fail(const Work& work, int error);

  // LaneLife::Host
  size_t dropOutstanding(LaneState from, int error, const std::string& why) override;
  void startFence(LaneState from) override;
  std::optional<int> fenced(TimePoint, bool) override { return 0; }
  void endFence(bool passed) override;
  void report(const Completion& completion, const std::string& why) override;
  std::string named(const char* what, const std::string& why) const override;
  Endpoint& endpoint() override { return *this; }

  LoopQueue& queue_;
  const std::shared_ptr<Port> port_;
  std::shared_ptr<Port> peer_;
  LaneLife life_;
  bool known_ = false;  // the peer was given our address
  std::array<std::byte, 16> address_;
};

}  // namespace weft::loop
