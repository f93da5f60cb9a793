// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <array>
#include <memory>

#include "providers/ofi/info.h"
#include "providers/ofi/operation.h"
#include "tests/bench/companion.h"
#include "tests/bench/end.h"
#include "tools/netdriver/comm.h"

// libfabric as it is meant to be used, without anything of weft between: the baseline. Same provider, same
// card, same settings of its domain as weft's; a channel is an endpoint of its own, and all complete to one
// queue. Messages are remote writes with data, or tagged sends, so that neither can be called the wrong one.
namespace weft::bench {

enum class RawStyle : uint8_t {
  write,   // remote write with data; done when its completion says so
  inject,  // the same, but what fits is copied by the call and done at once
  tagged,  // tagged send into a receive that is posted ahead
};

class RawEnd final : public End {
 public:
  RawEnd(RawStyle style, const Shape& shape, const Companion& companion);
  ~RawEnd() override;

  bool send(size_t channel, size_t bytes) override;
  void poll() override;
  std::string describe() const override;

 private:
  // First in it what the provider may write to.
  struct Context {
    fi_context2 fabric{};
    size_t channel = 0;
    bool receive = false;
  };
  struct Channel {
    ofi::FidPtr<fid_av> addresses;  // its own: EFA has one endpoint for each table
    ofi::FidPtr<fid_ep> endpoint;
    fi_addr_t peer = FI_ADDR_UNSPEC;
    std::array<Context, kMostInFlight> sends, receives;
  };
  struct Greeting {
    uint64_t base = 0, key = 0;
  };

  void check(int64_t code, const char* what) const;
  template <class T, class Open>
  ofi::FidPtr<T> open(const char* what, Open&& call) const;
  void openDomain();
  void openChannel(Channel* channel);
  void meet(const Companion& companion);
  ssize_t post(Channel& channel, size_t index, size_t bytes);
  void postReceives(size_t index);
  void readError();

  const RawStyle style_;
  std::shared_ptr<const ofi::Library> library_;
  ofi::Catalogue catalogue_;
  ofi::InfoPtr info_;
  netdriver::HostBuffer source_, sink_;
  ofi::FidPtr<fid_fabric> fabric_;
  ofi::FidPtr<fid_domain> domain_;
  ofi::FidPtr<fid_cq> queue_;
  ofi::FidPtr<fid_mr> sourceMemory_, sinkMemory_;
  Greeting theirs_;
  std::vector<std::unique_ptr<Channel>> channels_;
};

}  // namespace weft::bench
