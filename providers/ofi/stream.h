// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include "providers/ofi/library.h"
#include "src/base/bytes.h"

// A libfabric endpoint of a lane, and its way to an endpoint of the peer's. Most lanes have one. Over sockets
// a lane has several (WEFT_TCP_STREAMS), each with its own connection, and large writes take them in turn.
// With a single connection the sender waits for the receiver, as the kernel holds the connection's lock while
// it copies; and networks limit the rate of a single flow. Plain values, which their OfiEndpoint changes.
namespace weft::ofi {

// The data of a hello write where one end dials. No notification has this length.
constexpr uint64_t kRing = ~uint64_t{0};

struct Stream {
  FidPtr<fid_ep> own;          // software providers: this stream's own
  fid_ep* endpoint = nullptr;  // `own`, or the endpoint that the Queue's lanes share
  fi_addr_t to = FI_ADDR_UNSPEC;
  size_t outstanding = 0;      // operations in flight
  bool inBook = false;         // `to` has to be given back
  bool mayDial = true;         // false: the peer's end dials, and has not yet
  bool stands = false;         // a hello write was acknowledged
  bool helloInFlight = false;  // its completion has not come
  bool fenced = false;         // nothing of ours is on its way any more, or the connection is lost
};

}  // namespace weft::ofi
