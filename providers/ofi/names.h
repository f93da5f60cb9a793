// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "weft/transport.h"

// Facts about libfabric's providers that the providers do not tell. Each was found by running the provider,
// or follows from its hardware's rules. Pure values; any thread.
namespace weft::ofi {

struct Traits {
  std::string name;      // as WEFT_PROVIDER has it after "ofi:": "net", "efa-direct", "verbs"
  std::string provider;  // as libfabric spells it, compared exactly

  // Software providers make progress under one lock for a domain, and a lane can only be cut by closing its
  // sockets. So they get a domain for each Queue and a libfabric endpoint for each lane. Hardware gets a
  // domain for each Device, and an endpoint for each Queue that the Queue's lanes share.
  bool software = false;

  // A lane is a connection inside the provider. -FI_EAGAIN with nothing in flight means that the connection
  // is gone: the provider would open another one silently, and not tell what was lost.
  bool connections = false;

  // When both ends dial at once, the provider drops one of the two connections, and 1.17 was seen to crash:
  // an accepted connection that has not named its peer yet outlives its endpoint and is then polled. So one
  // end dials, and the other end waits for its hello (stream.h).
  bool oneDials = false;

  // A lane may have several connections side by side, as WEFT_TCP_STREAMS says.
  bool severalStreams = false;

  // A small write without a completion may be left to the provider altogether. The provider copies the bytes
  // and reports nothing more, unless a connection is lost, which ends the lane.
  bool injects = false;

  // fi_close of an endpoint with operations in flight reports them as cancelled. tcp;ofi_rxm 1.17 instead
  // frees memory that the next fi_cq_read still uses, and crashes.
  bool closesCleanly = false;

  // The provider's own name for an endpoint has the process number in it, and the file of that name stays
  // when the process is killed: the next process with that number could open none. So weft chooses the name.
  bool namedAfterProcess = false;

  // The most packets for which an endpoint is asked to keep buffers, in each direction; 0: the provider's own
  // choice. EFA's plain fabric fills 110 MB with 12,288 packets, which takes 40 ms of a connect, and the
  // card's own window never holds as many.
  size_t mostPackets = 0;

  // Without an event queue to write to, the provider aborts the process at an error that belongs to no
  // operation.
  bool wantsEventQueue = false;

  // The card answers only writers for which it has an address handle, and there is no handshake before a
  // lane's first write.
  bool targetMustKnow = false;

  // All writes of the provider are the card's own. The card may be asked to write lines of 128 bytes in order
  // (lines.h).
  bool canOrderLines = false;

  // All writes and reads of the provider are the card's own: this machine's processors never touch the bytes.
  // So it takes GPU memory, whatever libfabric was built with.
  bool cardMoves = false;

  // Why the provider cannot carry the protocol, in words; null: it can.
  const char* unfit = nullptr;

  bool reportsSource = false;  // fi_cq_readfrom names the sender of a remote write
  bool reportsLength = false;  // a remote write's completion has its length
  bool networkCards = false;   // its domains are network interfaces, not RDMA devices
  Delivery delivery = Delivery::selectable;
  float latencyUs = 0;
};

// The traits of a provider by our name for it ("verbs" means "verbs;ofi_rxm"). An unknown name gets careful
// defaults.
Traits traitsOf(const std::string& name);

// True where an offer of libfabric is the one that the traits describe.
bool matches(const Traits& traits, std::string_view provider, std::string_view fabric);

// Our names, best first, tried in this order when the user names none. shm is not among them, as it reaches
// only this host.
std::span<const char* const> preferredNames();

}  // namespace weft::ofi
