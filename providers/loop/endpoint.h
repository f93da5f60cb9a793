// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <memory>

#include "providers/loop/queue.h"
#include "weft/transport.h"

// A lane of the in-process fabric. Owned by whoever opened it, used by its Queue's owner thread. A work that
// fails breaks the lane: everything unfinished and everything posted later fails too, as on a queue pair in
// its error state.
namespace weft::loop {

class LoopEndpoint : public Endpoint {
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
  // From the Queue, when a work of ours failed: the others get ECANCELED.
  void breakLane();

 private:
  enum class State : uint8_t { fresh, unknown, connected, broken, retired };

  void finishIfKnown();
  void finishConnecting(int error);
  bool take(const Work& work);
  int check(const Work& work) const;
  bool landNow(const Work& work);
  int copyNow(const Work& work);
  void fail(const Work& work, int error);

  LoopQueue& queue_;
  const std::shared_ptr<Port> port_;
  std::shared_ptr<Port> peer_;
  State state_ = State::fresh;
  bool known_ = false;  // by what the user says
  std::array<std::byte, 16> address_;
};

}  // namespace weft::loop
