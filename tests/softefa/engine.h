// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/softefa/addresses.h"
#include "tests/softefa/counters.h"
#include "tests/softefa/faults.h"
#include "tests/softefa/links.h"
#include "tests/softefa/queue_pair.h"
#include "tests/softefa/regions.h"
#include "tests/softefa/settings.h"

namespace softefa {

// What the two halves of an opened NIC - Requester and Responder - share. Owned by Nic, guarded by its lock.
struct Engine {
  Engine(const Settings& given, const Identity& who, unsigned nic)
      : settings(given),
        identity(who),
        regions(given.maxRegions, given.lockedBytes),
        addresses(given.maxAddressHandles),
        faults(given.seed, nic),
        links(fabric(given)) {}

  static std::string fabric(const Settings& settings);

  const Settings settings;
  const Identity identity;
  uint64_t opening = 0;  // names this opening among all
  Regions regions;
  Addresses addresses;
  Faults faults;
  Links links;
  Counters counters;
  std::vector<std::unique_ptr<QueuePair>> queuePairs;  // by place; may be null

  QueuePair* find(uint32_t qpn) const;
  // The header of a packet that this NIC sends for `qp`.
  PacketHeader headerFrom(const QueuePair& qp, PacketKind kind) const;
  void violated(StrictCheck check, const std::string& what) const;
};

// Ends one piece of send work with a completion.
void completeSend(QueuePair& qp, const WorkRequest& work, Status status);

}  // namespace softefa
