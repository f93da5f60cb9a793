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

// Discovery: every port that can carry the protocol, and the reason why the others cannot. It opens each card
// for a moment, which takes some milliseconds. Any thread.
namespace weft::verbs {

// The cards for which libibverbs has a driver. The library takes a while to list them, so they are listed
// once. Ports keep the list alive, since the devices belong to it.
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

// The addresses of a port. A subnet manager or an administrator may change them while the port is in use, so
// each queue pair announces those that hold when it is made.
struct PortAddress {
  GidChoice gids;
  std::string none;             // why no address will do; empty: one does
  std::vector<GidEntry> table;  // the table from which `gids` was chosen
  ibv_mtu mtu = IBV_MTU_1024;
  uint16_t lid = 0;          // InfiniBand's local address; 0: none
  bool needsHeader = false;  // virtual functions share a LID and are told apart by GID
};

// Why a lane that uses this address of the port cannot use it now; empty: it holds. Its place in the table
// plays no part: the kernel keeps an entry that is in use, also where the address has another one by now.
std::string whyGone(const Gid& used, const PortAddress& now);

// A usable port. A value.
struct Port {
  DeviceInfo info;
  std::string card;  // "mlx5_0"
  ibv_device* device = nullptr;
  std::shared_ptr<const CardList> owner;  // keeps `device` valid
  Settings settings;
  bool ethernet = true;
  PortAddress address;                                           // when the port was found
  std::function<Result<PortAddress>(ibv_context*)> readAddress;  // the present one; any thread
  int maxCompletions = 0;                                        // the most entries of a completion queue
  int maxReceives = 0;      // the most receives of a shared receive queue
  int maxWorks = 0;         // the most works of a queue pair
  uint8_t readsServed = 1;  // outstanding reads that the card answers
  uint8_t readsAsked = 1;   // outstanding reads that the card can have
};

struct Catalogue {
  std::vector<Port> ports;  // by PCI address, so that numbering is the same on every node
  std::vector<Refusal> refusals;
};

// An error only where libibverbs cannot list devices at all. Where nothing is usable, the refusals have the
// reasons.
Result<Catalogue> discoverPorts(const std::shared_ptr<const Library>& library, const Config& config);

// Of a port whose speed sysfs does not tell, in Mb/s, by its width and the speed of one of its lanes.
int speedOf(uint8_t width, uint32_t speed);

// Opens a card for its use; the handle closes it.
Result<Handle<ibv_context>> openCard(const Library& library, ibv_device* card);

}  // namespace weft::verbs
