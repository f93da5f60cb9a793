// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "providers/verbs/gid.h"
#include "providers/verbs/library.h"
#include "providers/verbs/settings.h"
#include "src/base/config.h"
#include "weft/transport.h"

// Discovery: every port that can carry the protocol, and why the others cannot. Opens each card for a moment;
// some milliseconds a card. Any thread.
namespace weft::verbs {

// The cards libibverbs has a driver for. Asking for them takes the library a while, so this is done once.
class CardList {
 public:
  static Result<std::shared_ptr<const CardList>> read(std::shared_ptr<const Library> library);
  std::span<ibv_device* const> cards() const { return {list_.get(), static_cast<size_t>(count_)}; }

  CardList(std::shared_ptr<const Library> library, ibv_device** list, int count);

 private:
  const std::shared_ptr<const Library> library_;
  const std::unique_ptr<ibv_device*, void (*)(ibv_device**)> list_;
  const int count_;
};

// The addresses that a port is reached by. A subnet manager or an administrator may change it while the port
// is in use, so each queue pair announces what holds when it is made.
struct PortAddress {
  GidChoice gids;
  std::vector<GidEntry> table;  // from which `gids` was chosen
  ibv_mtu mtu = IBV_MTU_1024;
  uint16_t lid = 0;          // InfiniBand's; 0: none
  bool needsHeader = false;  // ports that share a LID, as virtual functions do, are told apart by GID
};

// That of `before` which peers were told and which does not hold any more, in words; empty: all holds.
std::string whatIsGone(const PortAddress& before, const PortAddress& now);

// A usable port.
struct Port {
  DeviceInfo info;
  std::string card;  // "mlx5_0"
  ibv_device* device = nullptr;
  std::shared_ptr<const CardList> owner;  // of `device`
  Settings settings;
  bool ethernet = true;
  PortAddress address;                                           // when it was found
  std::function<Result<PortAddress>(ibv_context*)> readAddress;  // as it is now; from any thread
  int maxCompletions = 0;                                        // entries of a completion queue
  int maxReceives = 0;                                           // of a shared receive queue
  int maxWorks = 0;                                              // of a queue pair
  uint8_t readsServed = 1;
  uint8_t readsAsked = 1;
};

struct Catalogue {
  std::vector<Port> ports;  // by PCI address, so that numbering is the same on every node
  std::vector<Refusal> refusals;
};

// An error only where libibverbs cannot list devices at all. With nothing usable the refusals say why.
Result<Catalogue> discoverPorts(const std::shared_ptr<const Library>& library, const Config& config);

Result<Handle<ibv_context>> openCard(const Library& library, ibv_device* card);

}  // namespace weft::verbs
