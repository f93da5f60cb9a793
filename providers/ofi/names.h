// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "weft/transport.h"

// Facts about libfabric's providers that they do not tell of themselves. Every line was learnt by
// running the provider or from its hardware's rules. Pure values; any thread.
namespace weft::ofi {

struct Traits {
  std::string name;      // as WEFT_PROVIDER has it after "ofi:": "net", "efa-direct", "verbs"
  std::string provider;  // as libfabric spells it, compared exactly

  // Software providers make progress under one lock a domain, and a lane can only be cut by closing its
  // sockets: they get a domain per Queue and a libfabric endpoint per lane. Hardware gets a domain per Device
  // and an endpoint per Queue that its lanes share.
  bool software = false;

  // A lane is a connection under the hood, and -FI_EAGAIN with nothing in flight means that it is gone: the
  // provider would open another one silently, with no word about what got lost.
  bool connections = false;

  // When both ends dial at once it drops one of the two connections, and 1.17 was seen to crash: an accepted
  // connection that has not said yet who it is outlives the endpoint it belongs to, and is polled then. So
  // one end dials, and the other waits for its word (stream.h).
  bool oneDials = false;

  // A lane may be several of them side by side, as WEFT_TCP_STREAMS says.
  bool severalStreams = false;

  // A small write that wants no completion may be left to it altogether: it copies the bytes and says nothing
  // more, unless a connection is lost, which takes the lane along.
  bool injects = false;

  // fi_close of an endpoint with operations in flight reports them as cancelled. tcp;ofi_rxm 1.17 frees what
  // the next fi_cq_read still follows and crashes instead.
  bool closesCleanly = false;

  // An endpoint's own name has the process number in it, and its file stays when the process is killed: the
  // next process with that number could open none. So we choose the name.
  bool namedAfterProcess = false;

  // The most packets an endpoint is asked to keep buffers for, each way; 0: what the provider likes. EFA's
  // plain fabric fills 110 MB with 12,288 packets, 40 ms of a connect, for what the card's own window never
  // holds.
  size_t mostPackets = 0;

  // Without an event queue to write to, it aborts the process at an error that belongs to no operation.
  bool wantsEventQueue = false;

  // The card answers only writers that it has an address handle for, and nothing shakes hands before a lane's
  // first write.
  bool targetMustKnow = false;

  // All its writes are the card's own, which may be asked to write lines of 128 bytes in order (lines.h).
  bool canOrderLines = false;

  // All its writes and reads are the card's own: this machine's processors never touch what it moves. So it
  // takes GPU memory, whatever libfabric was built with.
  bool cardMoves = false;

  // Why nothing can be built on it, in words; null: something can.
  const char* unfit = nullptr;

  bool reportsSource = false;  // fi_cq_readfrom names the sender of a remote write
  bool reportsLength = false;  // a remote write's completion has its length
  bool networkCards = false;   // its domains are network interfaces, not RDMA devices
  Delivery delivery = Delivery::selectable;
  float latencyUs = 0;
};

// Traits of a provider by our name for it ("verbs" means "verbs;ofi_rxm"). A name we do not know gets careful
// defaults.
Traits traitsOf(const std::string& name);

// True where libfabric found what the traits are about.
bool matches(const Traits& traits, std::string_view provider, std::string_view fabric);

// Our names, best first, tried in this order when the user names none. shm is not among them: it ends at the
// host's border.
std::span<const char* const> preferredNames();

}  // namespace weft::ofi
