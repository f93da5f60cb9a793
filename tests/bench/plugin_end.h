// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <memory>

#include "tests/bench/companion.h"
#include "tests/bench/end.h"
#include "tools/netdriver/comm.h"
#include "tools/netdriver/library.h"

// A network plugin, loaded and called as NCCL does: a channel is a comm, what cannot be posted is tried
// again, and of each comm's requests the oldest is tested. Every message has a step's record, and receives
// are posted with a whole slot of NCCL's buffers: up to 512 KiB for less, and what is sent for more.
namespace weft::bench {

class PluginEnd final : public End {
 public:
  PluginEnd(const std::string& path, const Companion& companion);
  ~PluginEnd() override;

  // That many more channels each way, all being connected at the same time; both processes call it.
  void connect(const Shape& more) { connect(more, companion_); }
  // The same with another process than the one it was made with.
  void connect(const Shape& more, const Companion& companion);
  // Channels connected from now on belong to another communicator.
  void beginCommunicator();

  bool send(size_t channel, size_t bytes) override;
  void poll() override;
  std::string describe() const override;

 private:
  struct Channel {
    netdriver::Comm comm;
    netdriver::Registration memory;
    netdriver::RecvArgs receive;  // but for where and how much
    std::array<void*, kMostInFlight> requests{};
    std::array<netdriver::StepRecord, kMostInFlight> steps{};
  };
  struct Opening {
    netdriver::Listener listener;
    netdriver::Handle handle{};
    void* comm = nullptr;
  };

  bool stepOutgoing(Opening* opening);
  bool stepIncoming(Opening* opening);
  void keep(void* comm, netdriver::Side side);
  bool postReceive(size_t channel);
  void testOldest(Channel& channel, Counters* counters);

  const Companion& companion_;
  std::unique_ptr<netdriver::Library> library_;
  netdriver::Net& net_;
  std::vector<netdriver::Context> contexts_;  // one for each communicator; the last is in use
  netdriver::HostBuffer source_, sink_;
  // Registrations go before their comms, comms before the context.
  std::vector<std::unique_ptr<Channel>> sends_, receives_;
};

}  // namespace weft::bench
