// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "providers/ofi/names.h"

// The traits of each provider that weft knows.
namespace weft::ofi {

namespace {

constexpr const char* kEfaDirect = "efa-direct";
constexpr const char* kPreferred[] = {kEfaDirect, "efa", "verbs", "tcp", "net", "tcp;ofi_rxm"};

// The plain fabric may emulate a write by sends through bounce buffers, which complete before the copy. The
// direct fabric is the card's own reliable datagrams.
Traits efa(const std::string& name) {
  Traits traits;
  traits.name = name;
  traits.provider = "efa";
  traits.reportsLength = traits.wantsEventQueue = true;
  traits.delivery = name == kEfaDirect ? Delivery::always : Delivery::selectable;
  traits.canOrderLines = traits.cardMoves = name == kEfaDirect;
  traits.latencyUs = 15;
  if (name != kEfaDirect) traits.mostPackets = 512;
  traits.targetMustKnow = name == kEfaDirect;
  return traits;
}

// The provider "net" of libfabric 1.17 is called "tcp" in libfabric 2.
Traits tcp(const std::string& name) {
  Traits traits;
  traits.name = traits.provider = name;
  traits.software = traits.connections = traits.closesCleanly = true;
  traits.severalStreams = traits.oneDials = traits.reportsSource = traits.networkCards = true;
  traits.injects = true;
  traits.latencyUs = 10;
  return traits;
}

Traits tcpOverRxm() {
  Traits traits = tcp("tcp;ofi_rxm");
  traits.severalStreams = traits.oneDials = traits.closesCleanly = traits.reportsSource = false;
  traits.injects = false;
  traits.latencyUs = 40;
  return traits;
}

Traits shm() {
  Traits traits;
  traits.name = traits.provider = "shm";
  traits.software = traits.reportsSource = traits.namedAfterProcess = true;
  traits.latencyUs = 1;
  return traits;
}

Traits verbsOverRxm() {
  Traits traits;
  traits.name = "verbs";
  traits.provider = "verbs;ofi_rxm";
  traits.delivery = Delivery::always;
  traits.latencyUs = 3;
  return traits;
}

// A provider of libfabric 1.x; libfabric 2.x has none.
Traits sockets() {
  Traits traits;
  traits.name = traits.provider = "sockets";
  traits.unfit =
      "it was seen to stop in the middle of writes, and to report some before their bytes were there; "
      "ofi:net carries messages over the same interfaces";
  return traits;
}

}  // namespace

Traits traitsOf(const std::string& name) {
  if (name == "efa" || name == kEfaDirect) return efa(name);
  if (name == "tcp" || name == "net") return tcp(name);
  if (name == "tcp;ofi_rxm") return tcpOverRxm();
  if (name == "shm") return shm();
  if (name == "sockets") return sockets();
  if (name == "verbs" || name == "verbs;ofi_rxm") return verbsOverRxm();
  Traits traits;
  traits.name = traits.provider = name;
  traits.networkCards = name.starts_with("udp");
  return traits;
}

bool matches(const Traits& traits, std::string_view provider, std::string_view fabric) {
  if (provider != traits.provider) return false;
  // libfabric 2 has two fabrics in the provider "efa", told apart by the fabric's name only.
  return provider != "efa" || (fabric == kEfaDirect) == (traits.name == kEfaDirect);
}

std::span<const char* const> preferredNames() {
  return kPreferred;
}

}  // namespace weft::ofi
