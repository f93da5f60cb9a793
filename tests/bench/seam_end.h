// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <memory>

#include "tests/bench/companion.h"
#include "tests/bench/end.h"
#include "tools/netdriver/comm.h"
#include "weft/transport.h"

// weft's seam without the protocol above it: what a Queue and its Endpoints cost over libfabric itself. A
// channel is a lane, a message one write with a notification that names the channel.
namespace weft::bench {

class SeamEnd final : public End {
 public:
  SeamEnd(const Shape& shape, const Companion& companion);
  ~SeamEnd() override;

  bool send(size_t channel, size_t bytes) override;
  void poll() override;
  std::string describe() const override { return device_->info().provider + " on " + device_->info().name; }

 private:
  struct Channel {
    std::unique_ptr<Endpoint> lane;
    RemoteMemory target;
  };
  void openLanes(const Companion& companion);

  std::unique_ptr<Transport> transport_;
  std::shared_ptr<Device> device_;
  netdriver::HostBuffer source_, sink_;
  std::unique_ptr<Memory> sourceMemory_, sinkMemory_;
  std::unique_ptr<Queue> queue_;
  std::vector<Channel> channels_;
  size_t connected_ = 0;
};

}  // namespace weft::bench
