// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "providers/ofi/library.h"
#include "src/base/bytes.h"

// A libfabric endpoint of a lane and its way to one of the peer's. Most lanes have one. Over sockets a lane
// has several (WEFT_TCP_STREAMS), each with a connection of its own, and large writes take turns: the kernel
// holds a connection's lock while it copies, so that with one of them the sender waits for the receiver, and
// networks give a single flow only so much. Plain values, moved on by their OfiEndpoint.
namespace weft::ofi {

// The data of a hello write where one end dials: no notification has this length.
constexpr uint64_t kRing = ~uint64_t{0};

struct Stream {
  FidPtr<fid_ep> own;          // software providers
  fid_ep* endpoint = nullptr;  // that, or the one that the Queue's lanes share
  fi_addr_t to = FI_ADDR_UNSPEC;
  size_t outstanding = 0;      // operations in flight
  bool inBook = false;         // `to` is to be given back
  bool mayDial = true;         // false: the peer's end does, and has not yet
  bool stands = false;         // a hello write was acknowledged
  bool helloInFlight = false;  // its completion is owed
  bool fenced = false;         // nothing of ours is on its way any more, or its connection is lost
};

}  // namespace weft::ofi
